"""Print what llama.cpp itself makes of texts: token ids, and log-probabilities; needs llama-cpp-python and numpy only.

python llama_reference.py MODEL.gguf tokens < texts.json       a list of texts → a list of lists of ids
python llama_reference.py MODEL.gguf logprobs < ids.json       lists of ids → lists of log-probabilities (nats)
"""

import json
import sys

import numpy as np
from llama_cpp import Llama


def main() -> None:
    """Read the standard input, write JSON to the standard output."""
    path, wanted = sys.argv[1:]
    inputs = json.load(sys.stdin)
    if wanted == "tokens":
        model = Llama(model_path=path, vocab_only=True, verbose=False)
        answers = [model.tokenize(text.encode(), add_bos=True, special=True) for text in inputs]
    else:
        model = Llama(model_path=path, n_ctx=512, logits_all=True, verbose=False, n_threads=1)
        answers = [logprobs(model, ids) for ids in inputs]
    json.dump(answers, sys.stdout)


def logprobs(model: Llama, ids: list[int]) -> list[float]:
    """Return the log-probability (nats) of every token of ``ids`` but the first, given those before it."""
    model.reset()
    model.eval(ids)
    logits = np.asarray(model.scores[: len(ids)], dtype=np.float64)
    totals = np.logaddexp.reduce(logits, axis=1)
    return [
        float(logits[place - 1, ids[place]] - totals[place - 1]) for place in range(1, len(ids))
    ]


if __name__ == "__main__":
    main()
