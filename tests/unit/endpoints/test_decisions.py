"""What is printed of typed questions: what no layout explains."""

from dataclasses import replace

import numpy as np

from choicewise.extensions.endpoints.decisions.decision_report import served_tables
from choicewise.extensions.endpoints.decisions.minus_own import ItemDifference, ServedMinusOwn
from choicewise.records import EndpointRecord
from choicewise.scoring.significance import paired_difference
from choicewise.table import terminal
from tests.helpers.printed import printed


def test_what_is_left_stands_beside_what_explains_it() -> None:
    none = paired_difference(np.zeros(4), np.zeros(4))
    record = EndpointRecord("systemone", 4, 0, 0.001, 0.002)
    own = ServedMinusOwn(
        kind="choice",
        served="decision/endpoint:choice",
        own="decision/vllm-0.32:choice",
        n=4,
        missing=1,
        flips=1,
        flips_low=0.05,
        flips_high=0.7,
        open=1,
        mean=0.01,
        most=0.0075,
        tv=none,
        kl=none,
        step=0.01,
        repeats=record,
        noise=None,
        allowed=0.007,
        verdict="unexplained",
        items=(ItemDifference("q7", 0, 2, 0.0075),),
    )
    other = replace(own, own="decision/sglang-1:choice", kind="noul")
    text = "\n".join(printed(*map(terminal, served_tables([own, other])), width=100))
    assert text.count("decision/endpoint:choice minus our computation") == 2
    assert "1 (1 open)" in text
    assert (
        "explained: rounding to 0.01 (0.005), 4 questions sent twice (0.002 at most), noise of our"
        in text
    )
    assert "1 question without probabilities" in text
    assert "q7" in text
    silent = replace(own, repeats=EndpointRecord("systemone"), items=())
    lines = " ".join(printed(*map(terminal, served_tables([silent]))))
    assert "question was sent twice" in lines
    assert "q7" not in lines
