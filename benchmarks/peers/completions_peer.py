"""The harness, version 0.4.13, asking a server for the requests of a file; it runs in the peers' environment.

    .venv-peers/bin/python benchmarks/peers/completions_peer.py URL NAME TOKENIZER CONCURRENT REQUESTS.json OUT.json

Its ``local-completions`` as users of vLLM run it: prompts of token ids, echoed with a log-probability each.  URL: the
server's root; CONCURRENT: requests at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI


def main() -> None:
    """Write the sums of log-probabilities in the order of the requests."""
    url, name, tokenizer, concurrent, requests, out = sys.argv[1:]
    pairs = json.loads(Path(requests).read_text())
    lm = LocalCompletionsAPI(
        base_url=f"{url}/v1/completions",
        model=name,
        tokenizer=tokenizer,
        tokenizer_backend="huggingface",
        num_concurrent=int(concurrent),
        max_length=4096,
        timeout=3600,
    )
    asked = [
        Instance("loglikelihood", {}, tuple(pair), 0, ("bench", index, 1))
        for index, pair in enumerate(pairs)
    ]
    start = time.perf_counter()
    sums = [score for score, _ in lm.loglikelihood(asked)]
    Path(out).write_text(json.dumps({"sums": sums, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
