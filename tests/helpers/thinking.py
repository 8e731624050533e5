"""A model that thinks before it answers, by a script, and templates that leave its thought open or not."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Answers, Ended, Generation, Prompt, Sampling, Span, TokenScores
from choicewise.tokens.chat_template import NONE, Arguments, ChatTemplate, Message
from tests.helpers.hash_models import MergingTokenizer
from tests.helpers.protocols import mmlu_protocol

SAID = "\n<|assistant|>\n"
CLOSING = "\n</think>\n\n"


class ToyTemplate(ChatTemplate):
    """Written in Python, so that no process is needed; ``open``: whether it opens a thought unless told not to."""

    def __init__(self, opened: bool) -> None:
        super().__init__("<think> or not", {})
        self.opened = opened

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        *before, last = messages
        begun = last.content if last.role == "assistant" else None
        shown = "\n".join(each.content for each in (messages if begun is None else before)) + SAID
        if begun is not None:
            return shown + begun
        if arguments.get("enable_thinking") is False:
            return shown + "<think>\n" + CLOSING
        return shown + "<think>\n" * self.opened

    def closing(self, arguments: Arguments = NONE) -> str:
        return CLOSING


class Thinker:
    """Writes ``scripts[question]`` after a prompt that holds the question, and after a closed thought what follows it.

    Tokens are bytes, but for the tags and "Answer: ".  After a thought that was closed for it, it answers D.
    """

    dtype, device, window = "float32", "cpu", 1_000_000
    supports = frozenset({Generation, Sampling, Span})
    kind_name = ""
    selfcheck = computed = planned = recipe = None

    def __init__(self, scripts: Mapping[str, str], opened: bool = False) -> None:
        self.name, self.scripts, self.opened = "thinker", scripts, opened
        self.digest = hashlib.sha256(repr((sorted(scripts.items()), opened)).encode()).hexdigest()
        self.tokenizer = MergingTokenizer(b"<think>", b"</think>", b"Answer: ")
        self.tokenizer.chat = ToyTemplate(opened)
        self.asked = list[Prompt]()

    def check(self, depth: int) -> None:
        return None

    def objection(self, question: Prompt) -> None:
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        self.asked += questions
        for index, question in enumerate(questions):
            match question:
                case Generation():
                    tokens = self._tokens(question)
                    scores = TokenScores.of(tokens, [-0.5] * len(tokens), [0] * len(tokens))
                    scores.ended = Ended(question.finish(tokens, self.tokenizer.token_bytes, ()))
                    yield index, scores
                case Span():
                    count = len(question.continuation)
                    yield index, TokenScores.of(question.continuation, [-1.0] * count, [0] * count)

    def _tokens(self, generation: Generation) -> list[int]:
        prompt, _, begun = self.tokenizer.decode(generation.context).rpartition(SAID)
        begun = begun.removeprefix("<think>\n") if self.opened else begun
        script = next(text for question, text in self.scripts.items() if question in prompt)
        text = script[len(begun) :] if script.startswith(begun) else "Answer: D"
        every = self.tokenizer.encode([text], special=False)[0].tolist()
        tokens = every[: generation.limit]
        return tokens[: generation.before_stop(tokens, self.tokenizer.token_bytes)]


class Wavering(Thinker):
    """Holds the letter that its thought named last for the likeliest, and is the surer the more it thought."""

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        for index, scores in super().answer(questions):
            question = questions[index]
            if isinstance(question, Span):
                thought = self.tokenizer.decode(question.context).rpartition(SAID)[2]
                named = [letter for letter in thought if letter in "ABCD"][-1:]
                label = self.tokenizer.decode(question.continuation).strip()
                nats = -1.0 if [label] == named else -1.0 - len(thought) / 40
                scores = TokenScores.of(
                    question.continuation, [nats] * len(question.continuation), scores.ranks
                )
            yield index, scores


def along(new_tokens: int = 200, **axes: Any) -> Protocol:
    """A protocol of letters along thoughts, asked in a chat without shots."""
    chat = {
        "benchmark": "any",
        "shots": 0,
        "chat": "message",
        "reading": "along-thought",
        "new_tokens": new_tokens,
    }
    return mmlu_protocol(**{**chat, **axes})


def quiz(golds: Sequence[int]) -> Dataset:
    """A question for each of the right letters."""
    items = [
        Item(
            f"q{number}",
            f"Question number {number}?",
            ("one", "two", "three", "four"),
            (gold,),
            "s",
        )
        for number, gold in enumerate(golds)
    ]
    return Dataset("quiz", {"test": tuple(items)})


def scripts(
    thoughts: Sequence[str], answers: Sequence[str], opened: bool = False
) -> dict[str, str]:
    """By question of :func:`quiz` what is written; the template opens the thought where it is ``opened``."""
    begins = "" if opened else "<think>\n"
    return {
        f"Question number {number}?": f"{begins}{thought}</think>{answer}"
        for number, (thought, answer) in enumerate(zip(thoughts, answers, strict=True))
    }


def reads(new_tokens: int, rule: str = "inspect@0.3.264", **axes: Any) -> Protocol:
    """A protocol that reads an answer in text, asked in a chat without shots."""
    text = {
        "reading": "generate",
        "score": "none",
        "ties": "none",
        "metric": "exact_match",
        "shots": 0,
    }
    chat = {"chat": "message", "decision": rule, "new_tokens": new_tokens}
    return mmlu_protocol(**{**text, **chat, "benchmark": "any", **axes})


def drawn_thoughts(count: int, seed: int) -> tuple[list[int], list[str], list[str]]:
    """Right answers, thoughts of 5 to 60 tokens that name letters, and answers; nearly half of them wrong."""
    draw = np.random.default_rng(seed)
    golds = draw.integers(0, 4, count).tolist()
    said = [int(gold) if draw.random() < 0.6 else int(draw.integers(0, 4)) for gold in golds]
    hints = [f"Answer: {'ABCD'[draw.integers(0, 4)]}\n" for _ in golds]
    sizes = draw.integers(4, 50, count).tolist()
    thoughts = [(hint + "hm " * 20)[:size] for hint, size in zip(hints, sizes, strict=True)]
    return golds, thoughts, [f"Answer: {'ABCD'[letter]}" for letter in said]
