"""What our model of lm-evaluation-harness is made of, without the harness: arguments, tokens, windows, stops, cache.
Against the harness itself: ``tests/peers/interop/test_harness_lm_*.py``."""

import math
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.cli.commands import invoke
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.interop import lm_eval as register
from choicewise.extensions.interop.lm_eval import requests as asking
from choicewise.extensions.interop.lm_eval.engine import REFUSED, STAMP, read_arguments, stamp
from choicewise.extensions.interop.lm_eval.requests import (
    Encoder,
    Request,
    Score,
    ScoredPrompt,
    StopRule,
    harness_prompts,
    score,
)
from choicewise.models.fake import HashModel
from choicewise.questions import Answers, Span, TokenScores
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import BYTES, ByteTokenizer
from tests.helpers.messages import Gist


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of progress comes from a busy machine."""
    monkeypatch.setattr("choicewise.running.progress.EVERY", (1e9, 1e9))


def request(context: str, continuation: str, group: object = None) -> Request:
    return Request(context, continuation, f"task, document {context!r}", group)


def scores_of(asked: Sequence[ScoredPrompt]) -> list[Score]:
    return score(HashModel(), asked, str, "loglikelihood")


def encoder(add_bos: bool | None = None, apart: bool = False) -> Encoder:
    return Encoder(ByteTokenizer(), BYTES, "<s>", add_bos, apart)


def test_arguments_arrive_as_the_harness_s_command_line_parses_them_and_a_template_hears_of_thinking() -> (
    None
):
    given = {
        "pretrained": "org/name",
        "dtype": "half",
        "max_length": "512",
        "add_bos_token": "True",
        "device": None,
    }
    arguments, notes = read_arguments(
        {**given, "batch_size": 8, "think_end_token": "17", "parallelize": False}
    )
    assert (arguments.dtype, arguments.max_length, arguments.add_bos_token) == (
        "float16",
        512,
        True,
    )
    assert (arguments.think_end_token, arguments.device) == (17, None)
    (note,) = notes
    assert note == Gist("batch_size has no effect: ... batch_tokens")
    thinking = {
        "pretrained": "m",
        "enable_thinking": False,
        "chat_template_args": {"style": "short"},
    }
    assert read_arguments(thinking)[0].template_arguments == {
        "style": "short",
        "enable_thinking": False,
    }


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_here_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=something can't be used"):
        read_arguments({"pretrained": "m", name: "something"})
    for value in (None, *REFUSED[name][0]):
        read_arguments({"pretrained": "m", name: value})


def test_everything_that_is_wrong_is_said_at_once_and_values_that_can_not_be_are_refused() -> None:
    wrong = {
        "max_length": "many",
        "add_bos_token": "perhaps",
        "revison": "main",
        "tp_plan": "auto",
        "pretrained": [1],
    }
    with pytest.raises(UsageError) as raised:
        read_arguments(wrong)
    assert len(raised.value.problems) == 5
    assert "did you mean revision?" in str(raised.value)
    complaints = {
        "max_length": "at least 1",
        "boundary": "harness, joint",
        "enable_thinking": "needs",
    }
    for (name, complaint), value in zip(complaints.items(), (0, "x", True), strict=True):
        with pytest.raises(UsageError, match=complaint):
            read_arguments({"pretrained": "m", name: value})


def test_every_argument_is_passed_on() -> None:
    long = "run --model choicewise --model_args a=b,c=d -x -- --tasks t"
    for line in (long, "--help", "run -h", "--model hf --tasks=x -L 5", ""):
        with patch.object(register, "run_harness") as run:
            invoke(["lm-eval", *line.split()])
        run.assert_called_once_with(line.split())


def test_without_the_harness_the_line_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(
        UsageError, match=r"pip install --constraint constraints\.txt '\.\[harness\]'"
    ):
        register.register()


def test_help_needs_no_harness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    register.run_harness(["--help"])
    printed = capsys.readouterr().out
    assert "choicewise lm-eval" in printed
    assert "pip install" in printed
    with pytest.raises(UsageError):
        register.run_harness(["--tasks", "x"])


@given(st.text(alphabet=" \n\tab\u00a0\u3000\x1f"), st.text(alphabet=" ab"))
def test_white_space_that_ends_a_context_is_moved(context: str, continuation: str) -> None:
    kept, moved = asking.space_moved(context, continuation)
    assert kept + moved == context + continuation
    assert not kept or not kept[-1].isspace()


def test_a_text_that_begins_with_the_prefix_gets_nothing_added() -> None:
    plain, framed, forced = encoder().texts(["<s>a", "a", "<s>a"])
    assert (plain.tolist(), framed.tolist()) == ([*b"<s>a"], [BYTES, *b"a"])
    assert forced is plain
    assert encoder().texts(["<s>a"], special=True)[0].tolist() == [BYTES, *b"<s>a"]
    assert encoder(add_bos=False).texts(["a"])[0].tolist() == [*b"a"]


def test_pairs_follow_the_harness_and_equal_contexts_share_their_tokens() -> None:
    pairs = encoder().pairs([("ab ", "c"), ("", "c"), (" ", "c"), ("ab", "")])
    seen = [(pair.context.tolist(), pair.continuation.tolist()) for pair in pairs[:3]]
    assert seen == [([BYTES, *b"ab"], [*b" c"]), ([BYTES], [*b"c"]), ([BYTES], [*b" c"])]
    assert pairs[3].missing == Gist("continuation '' ... no tokens")
    (apart,) = encoder(apart=True).pairs([("ab ", "c")])
    assert (apart.context.tolist(), apart.continuation.tolist()) == ([BYTES, *b"ab"], [*b" c"])
    (bare,) = encoder(add_bos=False).pairs([(" ", "c")])
    assert bare.missing == Gist("white space")
    (alone,) = Encoder(ByteTokenizer(), None, None, None, apart=False).pairs([("", "c")])
    assert "prefix_token_id" in str(alone.missing)
    one, other = encoder().pairs([("ab", "c"), ("ab ", "d")])
    assert one.context is other.context


class Merging(ByteTokenizer):
    """Bytes, but for one token that is ``ab``: 257."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        rows = super().encode([text.replace("ab", "\x01") for text in texts], special=special)
        return [np.where(row == 1, BYTES + 1, row).astype(np.int32) for row in rows]


def test_merged_tokens_are_noted_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    merging = Encoder(Merging(), BYTES, "<s>", None, apart=False)
    lost, changed = merging.pairs([("xa", "b"), ("xa", "bc")])
    assert (lost.missing, changed.merged, changed.continuation.tolist()) == (
        Gist("continuation 'b' ... merge"),
        True,
        [*b"c"],
    )
    asked = harness_prompts(
        merging, [request("xa", "b"), request("xa", "bc")], 100, renditions=False
    )
    with pytest.raises(ModelError, match=r"1 requests can't be scored.*boundary=lcp"):
        score(HashModel(), asked, lambda index: f"request {index}", "loglikelihood")
    assert (
        len(score(HashModel(), asked[1:], lambda index: "task, document 7", "loglikelihood")) == 1
    )
    told = capsys.readouterr()
    assert told.err == Gist("1 of 1 requests, ... task, document 7: ")
    assert told.out == ""


class Stubborn(HashModel):
    """Gives NaN for continuations that begin with ``n``."""

    def answer(self, questions: Sequence[Any]) -> Answers:
        for index, scores in super().answer(questions):
            if scores.tokens[0] == ord("n"):
                scores = TokenScores.of(
                    scores.tokens, [math.nan] * len(scores.tokens), scores.ranks
                )
            yield index, scores


def test_scores_are_sums_heard_of_as_they_come_and_what_has_no_number_is_refused_in_the_end() -> (
    None
):
    model, heard = HashModel(), dict[int, float]()
    asked = harness_prompts(
        encoder(), [request("ab", "cd"), request("", "e"), request("ab", "cd")], 100, False
    )
    scores = score(
        model, asked, str, "loglikelihood", lambda index, each: heard.update({index: each.total})
    )
    assert (scores[0], heard) == (
        scores[2],
        {index: each.total for index, each in enumerate(scores)},
    )
    ((_, plain),) = model.answer(
        [Span(np.asarray([BYTES, *b"ab"]), np.asarray([*b"cd"], np.int32))]
    )
    assert scores[0].total == pytest.approx(float(plain.logprobs.sum()))
    assert scores[0].greedy == (not plain.ranks.any())
    indices: list[int] = []
    asked = harness_prompts(encoder(), [request("ab", "cd"), request("ab", "nd")], 100, False)
    with pytest.raises(ModelError, match=r"NaN for 1 of 2 requests, .* request 1"):
        score(
            Stubborn(),
            asked,
            lambda index: f"request {index}",
            "x",
            lambda index, _: indices.append(index),
        )
    assert indices == [0]


@given(window=st.integers(2, 12), continuation=st.text("ab", min_size=1, max_size=8))
def test_the_start_of_a_context_is_cut_as_in_the_harness(window: int, continuation: str) -> None:
    (asked,) = harness_prompts(encoder(), [request("context", continuation)], window, False)
    whole = [BYTES, *b"context", *continuation.encode()]
    if len(continuation) > window:
        assert "does not fit (max_length=" in str(asked.missing)
    else:
        assert isinstance(asked.prompt, Span)
        tokens = [*asked.prompt.context.tolist(), *asked.prompt.continuation.tolist()]
        assert (tokens, asked.dropped) == (whole[-(window + 1) :], len(whole) - len(tokens))


@pytest.mark.parametrize("policy", ["lcp", "count", "joint", "bytes", "heal"])
def test_another_boundary_asks_the_choices_of_a_question_together(policy: str) -> None:
    requests = [request("xa", "b", 1), request("y", "b", 2), request("xa", "c", 1)]
    asked = asking.boundary_prompts(Encodings(ByteTokenizer(), "default"), policy, requests, 100)
    expected = [each.total for each in scores_of(harness_prompts(encoder(), requests, 100, False))]
    assert [each.total for each in scores_of(asked)] == pytest.approx(expected)


def test_too_many_tokens_for_one_tree_are_asked_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "PORTION", 12)
    texts = [("abc", "d"), ("xyz", "d"), ("abc", "e"), ("xyz", "f"), ("a" * 20, "b"), ("abc", "d")]
    asked = harness_prompts(encoder(), [request(*pair) for pair in texts], 100, False)
    questions = [each.prompt for each in asked if each.prompt is not None]
    groups = [*asking.portions(questions, [question.inputs for question in questions])]
    assert sorted(index for group in groups for index in group) == [0, 1, 2, 3, 4, 5]
    assert len(groups) > 2
    scores = scores_of(asked)
    monkeypatch.undo()
    assert scores_of(asked) == scores


def test_settings_are_read_as_the_harness_reads_them_and_the_tree_gives_the_plainly_likeliest_tokens_alone() -> (
    None
):
    wanted = asking.read_settings(
        {"until": "\n", "max_tokens": 7, "do_sample": False, "temperature": 0.0}, "</s>"
    )
    assert (wanted.stops, wanted.limit, wanted.settings) == (
        ("\n", "</s>"),
        7,
        {"do_sample": False},
    )
    drawn = asking.read_settings({"temperature": 0.7, "max_length": 30}, None)
    assert (drawn.stops, drawn.limit, drawn.total) == ((), 256, 30)
    assert drawn.settings == {"temperature": 0.7, "do_sample": True}
    for wrong in ({"until": 3}, {"until": [3]}, {"max_gen_toks": 0}, {"do_sample": True}):
        with pytest.raises(UsageError):
            asking.read_settings(wrong, None)
    own = {"do_sample": True, "eos_token_id": [2], "temperature": 0.6}
    assert asking.is_greedy({"do_sample": False, "top_p": 0.9}, own)
    assert all(
        asking.is_greedy({name: value}, {})
        for name, neutral in asking.GREEDY.items()
        for value in neutral
    )
    for setting in (
        {"repetition_penalty": 1.1},
        {"num_beams": 2},
        {"do_sample": True},
        {"suppress_tokens": [3]},
    ):
        assert not asking.is_greedy(setting, {})
    for other in (
        {"repetition_penalty": 1.05},
        {"forced_bos_token_id": 0},
        {"new_in_some_release": 1},
    ):
        assert not asking.is_greedy({"do_sample": False}, other)


def naive_length(text: str, stops: list[str], extra: int = 2) -> int | None:
    """The rule of the harness with a token per character, step by step."""
    for count in range(1, len(text) + 1):
        if any(stop in text[:count][-(len(stop) + extra) :] for stop in stops):
            return count
    return None


@given(text=st.text("ab", max_size=20), stops=st.lists(st.text("ab", max_size=3), max_size=3))
def test_a_generation_stops_where_the_harness_stops(text: str, stops: list[str]) -> None:
    rule = StopRule(stops, lambda stop: [*stop.encode()], lambda tokens: bytes(tokens).decode())
    assert rule.length([*text.encode()]) == naive_length(text, stops)
    spell = {
        1: "a",
        2: "bb",
        3: "c",
    }  # a stop that the last tokens alone do not hold is passed over
    rule = StopRule(
        ["abb"], lambda stop: [], lambda tokens: "".join(spell[token] for token in tokens[-1:])
    )
    assert rule.length([1, 2, 3]) is None


def test_a_cache_belongs_to_one_model() -> None:
    answers: dict[str, Any] = {}
    stamp(answers, "one")
    assert answers == {STAMP: "one"}
    stamp(answers, "one")
    with pytest.raises(UsageError, match="another model"):
        stamp(answers, "two")
    with pytest.raises(UsageError, match="an unknown model"):
        stamp({"0" * 64: (-1.0, True)}, "one")
