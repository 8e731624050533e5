"""Make tests/goldens/metrics.json: what other tools' own functions make of the log-likelihoods of random items.

    mkdir sources && cd sources
    pip install --no-deps --target . lm_eval==0.5.0.dev1
    git clone https://github.com/allenai/olmo-eval && git -C olmo-eval checkout e8b88f19
    python ../tests/goldens/make_metrics.py .

Of LM Evaluation Harness the functions that a task's scorer calls, of olmo-eval the classes that its tasks name.
"""

import math
import random
import sys
from pathlib import Path
from typing import Any

from golden_tools import GOLDENS, write

NAMES = (
    "bpb",
    "logprob_fn",
    "choice_logprob",
    "choice_prob_norm",
    "choice_logprob_norm",
    "brier_score",
)
"""Functions of the harness, each of an item."""

WORDS = (
    "Rome",
    "Paris",
    "Saint-Denis",
    "Orléans",
    "北京",
    "Ås",
    "a city of the north",
    "no",
    "naïve café",
)


def main() -> None:
    """Ask both tools about the same items."""
    folder = Path(sys.argv[1]).resolve()
    sys.path[:0] = [str(folder), str(folder / "olmo-eval" / "src")]
    draw = random.Random(0)
    items = [item(draw) for _ in range(60)]
    write(
        GOLDENS / "metrics.json",
        {
            "items": items,
            "lm-evaluation-harness 0.5.0.dev1": harness(items),
            "olmo-eval@e8b88f1": olmo(items),
        },
    )


def item(draw: random.Random) -> dict[str, Any]:
    """Two to five choices with the space before them, their log-likelihoods in nats, and the right one."""
    choices = [f" {word}" for word in draw.sample(WORDS, draw.randint(2, 5))]
    sums = [-draw.expovariate(1 / (2 + len(text))) for text in choices]
    return {"choices": choices, "sums": sums, "gold": draw.randrange(len(choices))}


def harness(items: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Every function of every item."""
    import numpy as np
    from lm_eval.api.metrics import ll
    from lm_eval.api.metrics.results import LLResults

    results = [
        LLResults(
            [],
            targets=each["gold"],
            choices=each["choices"],
            lls=np.array(each["sums"]),
            is_greedy=[],
        )
        for each in items
    ]
    return {
        name.removesuffix("_fn"): [
            float(getattr(ll, name)(each["gold"], one))
            for each, one in zip(items, results, strict=True)
        ]
        for name in NAMES
    }


def olmo(items: list[dict[str, Any]]) -> dict[str, float]:
    """Both metrics that are called bits_per_byte, over all items; and of none of them scored."""
    from olmo_eval.common.metrics.base import BPBMetricByteAvg, BPBMetricInstanceAvg
    from olmo_eval.common.types import Instance, LMOutput, LMRequest, RequestType, Response

    def response(each: dict[str, Any], scored: bool) -> Any:
        halves = [[{"logprob": total / 4}, {"logprob": 3 * total / 4}] for total in each["sums"]]
        outputs = [
            LMOutput(text=text, logprobs=tokens if scored else None)
            for text, tokens in zip(each["choices"], halves, strict=True)
        ]
        instance = Instance(question="", gold_answer="", metadata={"gold_idx": each["gold"]})
        return Response(
            instance=instance, request=LMRequest(RequestType.LOGLIKELIHOOD), outputs=outputs
        )

    known = [response(each, True) for each in items]
    values = {
        "instances": BPBMetricInstanceAvg().compute(known),
        "bytes": BPBMetricByteAvg().compute(known),
        "nothing scored": BPBMetricInstanceAvg().compute([response(items[0], False)]),
    }
    assert all(map(math.isfinite, values.values()))
    return values


if __name__ == "__main__":
    main()
