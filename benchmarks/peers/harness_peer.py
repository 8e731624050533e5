"""The harness, version 0.4.13, answering requests from a file; it runs in the peers' environment.

    .venv-peers/bin/python benchmarks/peers/harness_peer.py MODEL_FOLDER DTYPE BATCH REQUESTS.json OUT.json

``HFLM.loglikelihood`` is what every multiple-choice task of the harness calls with all its requests; loading and
rendering of data, which the whole command of Choicewise includes, is left out here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM


class Timed(HFLM):
    """Counts the tokens that go through the model, and the seconds between tokens in and scores out."""

    seconds = 0.0
    tokens = 0

    def _loglikelihood_tokens(self, *args, **kwargs):
        start = time.perf_counter()
        found = super()._loglikelihood_tokens(*args, **kwargs)
        self.seconds += time.perf_counter() - start
        return found

    def _model_call(self, inps, *args, **kwargs):
        self.tokens += inps.numel()
        return super()._model_call(inps, *args, **kwargs)


def main() -> None:
    """Write the sums of log-probabilities in the order of the requests."""
    folder, dtype, batch, requests, out = sys.argv[1:]
    pairs = json.loads(Path(requests).read_text())
    lm = Timed(pretrained=folder, dtype=dtype, batch_size=int(batch), device="cpu")
    asked = [
        Instance("loglikelihood", {}, tuple(pair), 0, ("bench", index, 1))
        for index, pair in enumerate(pairs)
    ]
    sums = [score for score, _ in lm.loglikelihood(asked)]
    Path(out).write_text(json.dumps({"sums": sums, "seconds": lm.seconds, "tokens": lm.tokens}))


if __name__ == "__main__":
    main()
