"""Thoughts that are cut after shares of their tokens and closed: every place, every shape, every refusal."""

from math import ceil
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.errors import DataError, ModelError, ProtocolError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.protocols.readings import ALONG
from choicewise.questions import Generation, Span
from choicewise.requests.generated import inside_thought
from choicewise.requests.render import TemplateSource, read_rendered, rendered_line
from choicewise.results.run import Run
from choicewise.running.observe import CUT_THOUGHT, ENDLESS, NO_THOUGHT
from choicewise.tokens.chat_template import ServedChat
from choicewise.util.jsonio import exact_json
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.thinking import CLOSING, SAID, Thinker, Wavering, along, quiz, reads, scripts

TAG = "<think>\n"
ANSWER = "\n\nAnswer: B"


def run(
    folder: Path, protocols: dict[str, Protocol], model: Thinker, golds: tuple[int, ...] = (1,)
) -> Run:
    return evaluate(model=model, data=quiz(golds), protocols=protocols, out=folder / "run")


def contexts(model: Thinker) -> list[str]:
    """What the letters were asked after, behind the prompt, in the order of the shares."""
    asked = [each for each in model.asked if isinstance(each, Span)]
    texts = dict.fromkeys(
        model.tokenizer.decode(each.context).rpartition(SAID)[2] for each in asked
    )
    return sorted(texts, key=len)


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("proposal", ["", "So it is"])
@pytest.mark.parametrize(
    "thought", ["abcdefghij", "abcdefg\n", "a", "ab", "abc\n\n", "a\nb\nc\nd\n"]
)
def test_every_place_is_the_plain_text(
    thought: str, proposal: str, opened: bool, tmp_path: Path
) -> None:
    """Tokens are bytes: the tag, so many of the thought, its closing.  At the end that is what the model wrote."""
    model = Thinker(scripts([thought], [ANSWER], opened), opened)
    run(tmp_path, {"p": along(proposal=proposal)}, model)
    begin, written = (TAG, thought) if opened else ("<think>", "\n" + thought)
    body = written.removesuffix("\n")  # the line break of the closing
    expected = {TAG + CLOSING + proposal}
    for share in (0.25, 0.5, 0.75, 1):
        place = ceil(share * len(body))
        broken = body[:place].endswith("\n") and place < len(body)
        expected.add(begin + body[:place] + (CLOSING[1:] if broken else CLOSING) + proposal)
    assert contexts(model) == sorted(expected, key=len)
    if thought.endswith("\n"):
        natural = begin + written + "</think>" + ANSWER.removesuffix("Answer: B") + proposal
        assert natural in expected


def test_without_a_thought_letters_are_asked_as_of_a_closed_one_and_the_text_is_that_of_reading_generate(
    tmp_path: Path,
) -> None:
    model = Wavering(scripts(["x" * 12], [ANSWER], True), True)
    closed = mmlu_protocol(benchmark="any", shots=0, chat="message", thought="close")
    asked = run(tmp_path, {"along": along(90), "closed": closed, "text": reads(90)}, model)
    assert len([each for each in model.asked if isinstance(each, Generation)]) == 1
    assert len([each for each in model.asked if isinstance(each, Span)]) == 4 * len(ALONG)
    at_0 = asked.under({"at 0": along(90, score="at_0")}).scores().to_pylist()
    known = [row["score"] for row in asked.scores("closed").to_pylist()]
    assert [row["score"] for row in at_0] == known
    stored = {
        row["part"]: row
        for row in asked.observations().to_pylist()
        if row["choice"] == 0 and row["part"]
    }
    assert {part: row["thought_tokens"] for part, row in stored.items()} == {
        1: 3,
        2: 6,
        3: 9,
        4: 12,
    }


WRITTEN = {
    "Question number 0?": f"{TAG}long enough\n</think>{ANSWER}",
    "Question number 1?": "Answer: B",
    "Question number 2?": f"{TAG}\n</think>{ANSWER}",
    "Question number 3?": f"{TAG}{'m' * 300}",
    "Question number 4?": f"{TAG}enough",
}


def test_items_without_a_whole_thought_are_missing_with_the_reason_and_never_wrong(
    tmp_path: Path,
) -> None:
    asked = run(
        tmp_path, {"p": along(100), "0": along(100, score="at_0")}, Wavering(WRITTEN), (1,) * 5
    )
    for row in asked.rows():
        assert (row.counts.n, row.counts.missing) == (1, 4)
        reasons = {reason.reason: reason.count for reason in row.missing_reasons}
        assert reasons == {NO_THOUGHT: 2, CUT_THOUGHT: 1, ENDLESS: 1}


def test_a_thought_at_its_limit_is_closed_and_cut_after_shares_of_it(tmp_path: Path) -> None:
    model = Wavering({"Question number 0?": "m" * 300}, opened=True)
    asked = run(tmp_path, {"p": along(5, thought_tokens=20)}, model)
    (row,) = asked.rows()
    assert (row.counts.n, row.counts.missing) == (1, 0)
    assert [text.count("m") for text in contexts(model)] == [0, 5, 10, 15, 20]
    assert {text.partition("m")[0] for text in contexts(model)[1:]} == {TAG}
    assert {text[-len(CLOSING) :] for text in contexts(model)} == {CLOSING}


@pytest.mark.parametrize("opened", [True, False])
def test_a_thought_closed_at_its_limit_after_a_line_break_is_closed_there_as_at_the_places_before(
    opened: bool, tmp_path: Path
) -> None:
    line = "mmmm\n"
    model = Wavering(
        {"Question number 0?": ("" if opened else "<think>") + line * 60}, opened=opened
    )
    limit = 20 if opened else 21  # the tag is a token of the thought, and of no share of it
    run(tmp_path, {"p": along(5, thought_tokens=limit)}, model)
    begin = TAG if opened else "<think>"
    assert contexts(model) == [
        TAG + CLOSING,
        *(begin + line * count + CLOSING[1:] for count in (1, 2, 3, 4)),
    ]


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"chat": "none"}, "chat message or turns"),
        ({"thought": "close"}, "use thought keep"),
        ({"thought_tokens": 0}, "use thought close"),
        ({"new_tokens": None}, "needs new_tokens"),
        ({"proposal": " {choice}"}, "one proposal for all"),
        ({"score": "token_mean"}, "has no score token_mean"),
        ({"score": "at_25", "reading": "loglikelihood", "new_tokens": None}, "has no score at_25"),
        ({"boundary": "heal"}, "takes boundary joint"),
        ({"fit": "cut-start"}, "takes fit drop-last-shot"),
        ({"views": "cyclic"}, "views cyclic"),
        ({"cut": "missing"}, "use cut read"),
    ],
)
def test_axes_that_mean_nothing_along_a_thought_are_refused(
    axes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ProtocolError, match=reason):
        along(**axes)


def test_a_model_without_thoughts_and_one_whose_chat_is_rendered_elsewhere_are_refused_by_name(
    tmp_path: Path,
) -> None:
    model = Thinker(WRITTEN)
    model.tokenizer.chat.text = "{{ messages }}"  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="thinker knows no thought.*a model that thinks"):
        run(tmp_path, {"p": along()}, model)
    model.tokenizer.chat = ServedChat()
    with pytest.raises(ModelError, match="no thought can be"):
        run(tmp_path, {"p": along()}, model)
    model.supports = frozenset({Generation})
    with pytest.raises(ModelError, match="no log-probabilities .* reading along-thought needs"):
        run(tmp_path, {"p": along()}, model)
    assert model.asked == []
    assert "thought=close" in inside_thought("<think>")


def test_the_signature_says_it_and_a_name_with_the_form_of_a_chat_takes_axes_of_one(
    tmp_path: Path,
) -> None:
    protocol = along(thought_tokens=64, score="at_50")
    assert parse_signature(signature(protocol)) == protocol
    assert "|reading:along-thought|" in signature(protocol)
    axes = "outside=keep,reading=along-thought,new_tokens=9"
    ((name, found),) = resolve(f"mmlu/original+message@{axes}").items()
    assert (name, found.chat, found.reading) == (
        f"mmlu/original@{axes}+message",
        "message",
        "along-thought",
    )
    assert resolve(name) == {name: found}


def test_rendered_requests_are_those_without_a_thought_and_are_not_read_back(
    tmp_path: Path,
) -> None:
    (request,) = TemplateSource(along(), quiz([1]), Thinker(WRITTEN).tokenizer.chat).requests(
        "s", quiz([1]).rows("test", "s")
    )
    line = rendered_line(request, "along-thought")  # type: ignore[arg-type]
    assert {context[-len(TAG + CLOSING) :] for context in line["contexts"]} == {TAG + CLOSING}
    (tmp_path / "lines.jsonl").write_text(exact_json(line))
    with pytest.raises(DataError, match="the model's own thought"):
        read_rendered(tmp_path / "lines.jsonl")
