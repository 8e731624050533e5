"""What is printed of typed questions: boards side by side with what moves them, and what no layout explains."""

from dataclasses import replace

import numpy as np

from choicewise.extensions.endpoints.decisions.boards import BoardReport, Question, board_numbers
from choicewise.extensions.endpoints.decisions.decision_report import board_tables, served_tables
from choicewise.extensions.endpoints.decisions.minus_own import ItemDifference, ServedMinusOwn
from choicewise.records import EndpointRecord
from choicewise.scoring.significance import paired_difference
from tests.helpers.printed import printed


def test_boards_with_the_same_reasons_share_a_line() -> None:
    asked = [
        Question("choice", ("b", "a"), [0.5, 0.5], 1, [0.5, 0.5], None),
        Question("choice", ("b", "a"), [1.0, 0.0], 0, [0.9, 0.1], None),
    ]
    lines = printed(*board_tables("run", [BoardReport("decision/x", "choice", 2, board_numbers(asked))]), width=200)
    assert lines[0] == "run, decision/x: choice of 2 options"
    card = next(line for line in lines if line.startswith("typed-decisions card"))
    assert card.split()[2:] == ["2", "0.500", "(0.500)", "1.219", "(0.184)", "0.0100", "(0.160)", "-", "(-)"]
    assert "OpenDecisions" in next(line for line in lines if line.startswith("EvalScope 1.14.1, "))
    rules = "any highest option of the soft answer is right (accuracy); p at least 1e-09 (divergence)"
    assert any(line.startswith(f"discussion 37: {rules}") for line in lines)


def test_what_is_left_stands_beside_what_explains_it() -> None:
    none = paired_difference(np.zeros(4), np.zeros(4))
    record = EndpointRecord("systemone", 4, 0, 0.001, 0.002)
    own = ServedMinusOwn(
        *("choice", "decision/endpoint:choice", "decision/vllm-0.32:choice", 4, 1, 1, 0.05, 0.7, 1, 0.01, 0.0075),
        *(none, none, 0.01, record, None, 0.007, "unexplained", (ItemDifference("q7", 0, 2, 0.0075),)),
    )
    other = replace(own, own="decision/sglang-1:choice", kind="noul")
    text = "\n".join(printed(*served_tables([own, other]), width=100))
    assert text.count("decision/endpoint:choice minus own computation") == 2
    assert "1 (1 open)" in text
    assert "explained: rounding to 0.01 (0.005), 4 questions sent twice (0.002 at most), noise of our" in text
    assert "1 question without probabilities on one side" in text
    assert "q7" in text
    silent = replace(own, repeats=EndpointRecord("systemone"), items=())
    lines = " ".join(printed(*served_tables([silent])))
    assert "no question was sent twice" in lines
    assert "q7" not in lines
