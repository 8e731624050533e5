"""How a server says that a text ended, where it puts a thought, and what it is told of both."""

from typing import Any

import numpy as np
import pytest

from choicewise.extensions.endpoints.server.faults import Unanswerable
from choicewise.extensions.endpoints.server.generation_routes import (
    ChatGeneration,
    Completions,
    settings,
)
from choicewise.extensions.endpoints.server.next_token_routes import ChatTopTokens
from choicewise.extensions.endpoints.server.routes import Prompts, chat_messages, chat_objection
from choicewise.questions import FILTERED, LENGTH, STOP, Ended, Generation, Span, TokenScores
from choicewise.scoring.answers import STATUSES, Written, judged
from choicewise.scoring.decide import Decisions
from choicewise.tokens.chat_template import Message, ServedChat
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids
from tests.helpers.thinking import reads

TOKENIZER = ByteTokenizer()
TOKENIZER.chat = ServedChat()


def chat(arguments: dict[str, Any] | None = None, **limits: Any) -> Generation:
    text = ServedChat().render([Message("user", "Which?")], arguments or {})
    context = TOKENIZER.encode([text], special=False)[0]
    return Generation(context, **{"limit": 20, "opened": "", **limits})


def said(
    message: dict[str, Any],
    finish: str | None = "stop",
    asked: Generation | None = None,
    **usage: Any,
) -> TokenScores:
    (call,) = ChatGeneration("m", TOKENIZER).calls([(0, asked or chat())])
    answer = {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }
    (scores,) = call.read(answer)
    return scores


def reasoned(thought: int, completion: int) -> dict[str, Any]:
    return {
        "completion_tokens": completion,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def status(scores: TokenScores) -> str:
    """As a run has it."""
    ended = scores.ended or Ended()
    text: Written | str | None = FILTERED if ended.finish == FILTERED else None
    if scores.missing is None:
        thought = bool(ended.thought) or bool(ended.thought_tokens)
        text = Written.of(scores.text or "", None, None, finish=ended.finish, thought=thought)
    read = np.array(["Answer:" in (scores.text or "")])
    _, statuses = judged(
        reads(20), [text], read, Decisions.uncompared(np.zeros(1, np.int64), np.ones(1))
    )
    return STATUSES[statuses[0] % 8]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_thought_that_is_given_apart_is_kept_and_never_read(name: str) -> None:
    whole = said({"content": "Answer: B", name: "A or B?"})
    assert (whole.text, whole.ended) == ("Answer: B", Ended(STOP, "A or B?"))
    assert status(whole) == "answered"
    cut = said({"content": None, name: "Answer: A"}, "length")
    assert (cut.text, cut.ended, status(cut)) == ("", Ended(LENGTH, "Answer: A"), "cut_thinking")


def test_the_newer_name_comes_first_and_parts_of_the_content_last() -> None:
    both = said({"content": "b", "reasoning": "new", "reasoning_content": "old"})
    assert both.ended == Ended(STOP, "new")
    parts = [
        {"type": "thinking", "thinking": "a"},
        {"type": "text", "text": "Answer: B"},
        {"type": "text"},
    ]
    told = said({"content": parts})
    assert (told.text, told.ended) == ("Answer: B", Ended(STOP, "a"))
    assert said({"content": [{"type": "reasoning", "text": "a"}]}, "length").ended == Ended(
        LENGTH, "a"
    )


@pytest.mark.parametrize(
    ("message", "usage", "expected"),
    [
        ({"content": "", "reasoning": None}, {}, "cut_thinking"),
        ({"content": ""}, reasoned(16, 16), "cut_thinking"),
        ({"content": None}, reasoned(16, 16), "cut_thinking"),
        (
            {"content": "Answer: A, let me see"},
            reasoned(16, 16),
            "cut_thinking",
        ),  # passed off as the answer
        ({"content": "Answer: A, let me see"}, reasoned(10, 16), "cut_answer"),
        ({"content": "<think>Answer: A"}, {}, "cut_thinking"),
        ({"content": "<think>a</think>Answer: B"}, {}, "cut_answer"),
    ],
)
def test_a_server_that_hides_its_thoughts_gives_no_false_zero(
    message: dict[str, Any], usage: dict[str, Any], expected: str
) -> None:
    assert status(said(message, "length", **usage)) == expected


def test_what_a_server_counts_is_kept() -> None:
    ended = said({"content": "Answer: B"}, "stop", **reasoned(12, 15)).ended
    assert ended == Ended(STOP, None, 15, 12)
    assert said({"content": "b"}, None, reasoning_tokens=3, completion_tokens=True).ended == Ended(
        None, None, None, 3
    )


def test_a_thought_that_the_server_closed_at_its_limit_is_forced_though_the_text_ended_by_itself() -> (
    None
):
    limited = chat(thought=12)
    forced, natural, unknown = (
        said({"content": "Answer: B"}, "stop", limited, **usage)
        for usage in (reasoned(12, 15), reasoned(11, 14), {})
    )
    assert [each.ended and each.ended.forced for each in (forced, natural, unknown)] == [
        True,
        False,
        None,
    ]


def test_a_text_that_a_filter_withheld_is_no_answer_and_other_ends_are_refused() -> None:
    withheld = said({"content": ""}, "content_filter")
    assert withheld.missing is not None
    assert (withheld.ended, status(withheld)) == (Ended(FILTERED), "filtered")
    for message, finish in (
        ({"content": "b"}, "tool_calls"),
        ({"content": "b"}, ["stop"]),
        ({"content": None}, "stop"),
    ):
        with pytest.raises(Unanswerable):
            said(message, finish)  # type: ignore[arg-type]


def test_what_is_sent_of_thoughts() -> None:
    asked = chat({"enable_thinking": False, "effort": "low"}, stops=(b"\n\n",), thought=30)
    (call,) = ChatGeneration("m", TOKENIZER, unchanged=False).calls([(0, asked)])
    assert call.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Which?"}],
        "chat_template_kwargs": {"enable_thinking": False, "effort": "low"},
        "thinking_token_budget": 30,
        "max_tokens": 50,
        "top_p": 1,
        "temperature": 0,
    }
    assert chat_messages(TOKENIZER, asked.context) == [{"role": "user", "content": "Which?"}]
    assert chat_objection(TOKENIZER, asked.context) is None
    assert settings(chat(stops=(b"\n\n",), opened=None), unchanged=False)["stop"] == ["\n\n"]
    assert (
        said({"content": "<think>a\n\nb</think>c\n\nd"}, asked=asked).text
        == "<think>a\n\nb</think>c"
    )
    (plain,) = ChatGeneration("m", TOKENIZER, unchanged=False).calls([(0, chat())])
    assert not {"chat_template_kwargs", "thinking_token_budget"} & plain.body.keys()


def test_letters_are_not_scored_where_the_server_begins_with_a_thought() -> None:
    route = ChatTopTokens("m", TOKENIZER, 5)
    (call,) = route.calls([(0, Span(chat({"enable_thinking": True}).context, ids(65)))])
    assert call.body["chat_template_kwargs"] == {"enable_thinking": True}
    listed = {
        "content": [
            {"token": "A", "logprob": -0.5, "top_logprobs": [{"token": "A", "logprob": -0.5}]}
        ]
    }
    given = {"index": 0, "message": {"content": "A"}, "logprobs": listed}
    (scores,) = call.read({"choices": [given]})
    assert scores.logprobs.tolist() == [-0.5]
    with pytest.raises(Unanswerable, match="begins with a thought"):
        call.read({"choices": [{**given, "message": {"content": None, "reasoning": "Okay"}}]})


def test_completions_say_why_they_ended() -> None:
    def ended(finish: str | None, tokens: int, named: bool = True) -> str | None:
        route = Completions("m", ByteTokenizer(), Prompts(), named)
        (call,) = route.calls([(0, Generation(ids(1), 3, (b"z",)))])
        names = [f"token_id:{97 + place}" for place in range(tokens)]
        top = [{name: -0.5} for name in names]
        given = {"tokens": names, "token_logprobs": [-0.5] * tokens, "top_logprobs": top}
        answer = {"index": 0, "text": "abc"[:tokens], "finish_reason": finish, "logprobs": given}
        (scores,) = call.read({"choices": [answer]})
        assert scores.ended is not None
        return scores.ended.finish

    assert [ended("length", 3), ended("stop", 2), ended(None, 3), ended(None, 2)] == [
        LENGTH,
        STOP,
        LENGTH,
        STOP,
    ]
    assert [ended("length", 3, False), ended("eos", 2, False), ended(None, 3, False)] == [
        LENGTH,
        "eos",
        None,
    ]
