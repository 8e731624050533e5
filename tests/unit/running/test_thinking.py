"""Nothing is scored inside an open thought; thoughts have limits of their own, and stops count after them."""

from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.errors import ModelError, ProtocolError
from choicewise.extensions.run.plan import unique_tokens
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.questions import Conclusion, Generation, Sampling, Span
from choicewise.requests.render import rendered_requests
from choicewise.results.run import Run
from choicewise.running.observe import IN_A_THOUGHT, observe
from choicewise.tokens.chat_template import Message, ServedChat
from tests.helpers.answers import ids
from tests.helpers.messages import Gist
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.thinking import CLOSING, SAID, Thinker, quiz, reads, scripts

LETTERS = mmlu_protocol(benchmark="any", shots=0, chat="message")
DATA = quiz([1, 1])
CHAIN = {
    "reading": "chain-of-thought",
    "proposal": "\nSo it is",
    "score": "vote",
    "fit": "refuse",
    "seed": 1,
}


def thinker(opened: bool = True, thought: str = "x" * 30, answer: str = "Answer: B") -> Thinker:
    return Thinker(scripts([thought] * 2, [answer] * 2, opened), opened)


def run(
    folder: Path, protocols: dict[str, Protocol], model: Thinker, data: Dataset = DATA, **more: Any
) -> Run:
    return evaluate(model=model, data=data, protocols=protocols, out=folder / "run", **more)


@pytest.mark.parametrize(
    "axes", [{}, {"views": "cyclic"}, {**CHAIN, "new_tokens": 4, "chains": 1, "chat": "message"}]
)
def test_letters_are_not_scored_inside_an_open_thought(
    axes: dict[str, Any], tmp_path: Path
) -> None:
    protocol = mmlu_protocol(**{"benchmark": "any", "shots": 0, "chat": "message", **axes})
    reason = r"template of thinker .* open thought \(<think>\), .* thought=close"
    with pytest.raises(ModelError, match=reason):
        run(tmp_path, {"p": protocol}, thinker())
    model = thinker()
    with pytest.warns(UserWarning, match="in an open thought"):
        both = run(tmp_path, {"p": protocol, "text": reads(60)}, model)
    assert list(both.protocols) == ["text"]
    assert all(isinstance(each, Generation) for each in model.asked)
    assert "open thought" in both.manifest.refused["p"]


@pytest.mark.parametrize(
    ("axes", "tail"),
    [
        ({"thought": "close"}, f"{SAID}<think>\n{CLOSING}"),
        ({"template": "enable_thinking=false"}, f"{SAID}<think>\n{CLOSING}"),
        ({"proposal": "The best answer is"}, f"{SAID}The best answer is"),
    ],
)
def test_a_closed_thought_is_what_the_template_writes_and_is_in_the_signature(
    axes: dict[str, Any], tail: str, tmp_path: Path
) -> None:
    protocol = mmlu_protocol(benchmark="any", shots=0, chat="message", **axes)
    model = thinker()
    asked = run(tmp_path, {"p": protocol}, model)
    assert asked.rows()[0].counts.n == 2
    contexts = {
        model.tokenizer.decode(each.context) for each in model.asked if isinstance(each, Span)
    }
    assert {context[-len(tail) :] for context in contexts} == {tail}
    for axis, value in axes.items():
        assert f"|{axis}:{value}|" in signature(protocol)
    assert parse_signature(signature(protocol)) == protocol


def test_a_template_that_opens_no_thought_is_asked_as_before_and_closing_changes_nothing(
    tmp_path: Path,
) -> None:
    protocols = {
        "p": LETTERS,
        "closed": mmlu_protocol(benchmark="any", shots=0, chat="message", thought="close"),
    }
    rows = run(tmp_path, protocols, thinker(opened=False)).rows()
    assert len({row.identity.t for row in rows}) == 1
    assert len({row.identity.i for row in rows}) == 1


def test_rendered_prompts_that_end_in_an_open_thought_are_missing_with_the_reason(
    tmp_path: Path,
) -> None:
    tails = ("assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n", "what is <think>?")
    rows = [
        {
            "item": str(number),
            "context": f"Question number {number}? {tail}",
            "continuations": ["A", "B"],
            "gold": 1,
        }
        for number, tail in enumerate(tails)
    ]
    given = rendered_requests("given", rows)
    asked = run(tmp_path, {"p": given.protocol("any")}, thinker(), given.dataset, rendered=[given])
    (row,) = asked.rows()
    assert (row.counts.n, row.counts.missing) == (2, 1)
    (reason,) = row.missing_reasons
    assert reason.reason == Gist("open thought (<think>)")


def test_nothing_is_scored_after_a_chain_that_ends_in_its_thought() -> None:
    model = thinker(opened=False)
    context = model.tokenizer.encode([f"Question number 0?{SAID}"], special=False)[0]
    for limit, missing in ((20, IN_A_THOUGHT), (100, None)):
        chain = Generation(context, limit, (), Sampling(b""), opened="")
        conclusion = Conclusion(chain, Span(ids(10), ids(65)))
        rows = {
            row.key: row for row in observe(model, {"chain": chain, conclusion.key: conclusion})
        }
        assert rows[conclusion.key].missing == missing


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(
    ("limit", "tail", "forced", "letter"),
    [(10, f"{CLOSING}Answer: D", True, 3), (60, "</think>Answer: B", False, 1)],
)
def test_a_thought_at_its_limit_is_closed_and_the_answer_has_tokens_of_its_own(
    opened: bool, limit: int, tail: str, forced: bool, letter: int, tmp_path: Path
) -> None:
    model = thinker(opened)
    asked = run(tmp_path, {"p": reads(6, thought_tokens=limit)}, model)
    measured = asked.measurements["p"]
    assert measured.prediction.tolist() == [letter] * 2
    for row in asked.tables.observations.to_pylist():
        assert row["text"].endswith(tail)
        assert (row["finish"], row["forced"]) == ("eos", forced)
        assert len(row["tokens"]) == len(row["logprobs"]) == len(row["sizes"])
        assert sum(row["sizes"]) == len(row["text"].encode())
        closing = len(model.tokenizer.encode([CLOSING], special=False)[0])
        assert row["logprobs"].count(0.0) == (closing if forced else 0)
    (report,) = asked.rows()
    assert report.answers is not None
    assert (report.answers.answered, report.answers.limit) == (2, 6 + limit)
    assert report.cut == 0


def test_an_answer_at_its_limit_is_cut_though_the_thought_was_closed(tmp_path: Path) -> None:
    asked = run(tmp_path, {"p": reads(1, thought_tokens=10, cut="missing")}, thinker())
    (row,) = asked.rows()
    assert row.answers is not None
    assert (row.answers.cut_answer, row.counts.missing, row.bounds.low, row.bounds.high) == (
        2,
        2,
        0.0,
        1.0,
    )


def test_where_no_thought_begins_the_answer_has_its_own_limit_and_a_thought_that_ends_itself_has_no_answer(
    tmp_path: Path,
) -> None:
    written = {
        "Question number 0?": "No thought at all.\nAnswer: B",
        "Question number 1?": "<think>\nenough",
    }
    asked = run(tmp_path, {"p": reads(60, thought_tokens=8)}, Thinker(written))
    texts = [row["text"] for row in asked.tables.observations.to_pylist()]
    assert "No thought at all.\nAnswer: B" in texts
    whole = run(tmp_path / "whole", {"p": reads(60, thought_tokens=80)}, Thinker(written)).rows()[0]
    assert whole.answers is not None
    assert (whole.answers.answered, whole.answers.empty) == (1, 1)


def test_stops_of_a_protocol_count_after_the_thought(tmp_path: Path) -> None:
    model = thinker(thought="one\n\ntwo", answer="Answer: B\n\nQuestion: more")
    asked = run(tmp_path, {"p": reads(90, stop="\n\n"), "plain": reads(90, stop="zz")}, model)
    stopped, plain = (asked.measurements[name] for name in ("p", "plain"))
    assert stopped.prediction.tolist() == plain.prediction.tolist() == [1, 1]
    texts = {row["text"] for row in asked.tables.observations.to_pylist()}
    assert texts == {
        "one\n\ntwo</think>Answer: B\n",
        "one\n\ntwo</think>Answer: B\n\nQuestion: more",
    }


def test_a_limit_of_the_thought_is_planned_for() -> None:
    model = thinker()
    context = ids(*range(10))
    asked = Generation(context, 1, thought=20, closing=ids(1, 2))
    assert unique_tokens([asked], model.tokenizer) == 10 + 20 + 2 + 1 - 1


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"thought_tokens": 0}, "use thought close"),
        ({"thought_tokens": 5, "thought": "close"}, "use thought keep"),
        ({"thought_tokens": 5, "chat": "none"}, "chat is none"),
        ({"thought": "close", "chat": "none"}, "chat is none"),
        ({"template": "enable_thinking=false", "chat": "none"}, "chat is none"),
        ({"template": "enable_thinking"}, "write NAME=VALUE"),
        ({"template": "messages=1"}, "write NAME=VALUE"),
        ({"template": "a=1\na=2"}, "write NAME=VALUE"),
    ],
)
def test_axes_of_thoughts_that_mean_nothing_are_refused(axes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        reads(9, **axes)
    with pytest.raises(ProtocolError, match="axis thought_tokens is 5"):
        mmlu_protocol(chat="message", thought_tokens=5)


def test_a_server_that_renders_the_chat_is_told_what_its_template_would_be_and_closes_nothing() -> (
    None
):
    served, message = ServedChat(), [Message("user", "Which?")]
    text = served.render(message, {"enable_thinking": False})
    assert served.messages(text) == [*message, Message("template", '{"enable_thinking": false}')]
    assert served.messages(served.render(message)) == message
    assert (served.opens(), served.may_think) == ("", True)
    with pytest.raises(ModelError, match="turn thinking off"):
        served.closing()
    model = thinker()
    model.tokenizer.chat = served
    with pytest.raises(ModelError, match="no thought can be"):
        evaluate(
            model=model,
            data=DATA,
            protocols={
                "p": mmlu_protocol(benchmark="any", shots=0, chat="message", thought="close")
            },
            out="never",
        )
    assert model.asked == []
