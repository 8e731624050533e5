"""Thought and answer in generated text: the tags of chat templates, the channels of gpt-oss, thoughts that are cut.

The answer is what stands outside the thoughts: nothing that the model showed is lost, and nothing that it only thought
is read.  A thought that never ends leaves no answer.  All places count bytes, as the sizes of tokens do.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

TAGS: Final = {"<think>": "</think>", "◁think▷": "◁/think▷", "[THINK]": "[/THINK]"}
"""What a thought begins and ends with: Qwen3, DeepSeek-R1 and most others; Kimi; Magistral."""

ANALYSIS: Final = "<|channel|>analysis<|message|>"
"""What a thought of gpt-oss begins with."""

ENDS: Final = tuple(text.encode() for text in (*TAGS.values(), "<|channel|>final<|message|>"))
"""What a thought ends with."""

_CHANNELS: Final = (
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|constrain|>",
)

MARKS: Final = frozenset([*TAGS, *TAGS.values(), *_CHANNELS])
"""Texts that a tokenizer may have as special tokens, which stand for no bytes though a thought is told by them."""

_TOLD = (*TAGS, *TAGS.values(), _CHANNELS[0])
_OPEN = {tag.encode(): close.encode() for tag, close in TAGS.items()}
_TAG = re.compile(b"|".join(map(re.escape, [*_OPEN, *_OPEN.values()])))
_MESSAGE = re.compile(
    rb"<\|channel\|>([^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>(.*?)(?=<\|[a-z]+\|>|\Z)",
    re.DOTALL,
)
_TAIL = 200  # characters within which a prompt ends in what begins a thought, white space included

Span = tuple[int, int]
"""From where to where, in bytes of the text."""


class Parts(NamedTuple):
    """The ``thoughts``, with their tags, and the ``answers``: what stands outside them; both in order, none empty.

    ``open``: whether the last thought does not end, so that there is no answer.
    """

    thoughts: tuple[Span, ...]
    answers: tuple[Span, ...]
    open: bool

    @property
    def start(self) -> int | None:
        """Where the text after the last thought begins; None in a thought that does not end."""
        return None if self.open else max((end for _, end in self.thoughts), default=0)


def split(text: bytes, opened: str = "") -> Parts:
    """The parts of a generated ``text``; ``opened``: what the prompt left open (:func:`left_open`).

    A closing tag that nothing opened ends a thought that began in the prompt.  A tag in the middle of a line that
    nothing closes, and a closing tag in the middle of an answer, are words of the answer.
    """
    if opened == ANALYSIS or text.lstrip().startswith(_CHANNELS[0].encode()):
        return _split_channels(text, opened)
    thoughts = list[Span]()
    inside, start, end = opened.encode(), 0, 0  # of the thought, and the end of the one before
    for match in _TAG.finditer(text):
        tag = match[0]
        if inside:
            closes = tag == _OPEN[inside]
        elif tag in _OPEN:
            inside, start, closes = tag, match.start(), False
        else:
            start, closes = end, not thoughts or not text[end : match.start()].strip()
        if closes:
            thoughts.append((start, match.end()))
            inside, end = b"", match.end()
    is_open = bool(inside) and (
        inside == opened.encode() or _begins_line(text[end:start]) or start == end
    )
    if is_open and start < len(text):
        thoughts.append((start, len(text)))
    return Parts(tuple(thoughts), _outside(thoughts, len(text)), is_open)


def answer(text: str, opened: str = "") -> str | None:
    """The answer in a generated ``text``; None where its thought does not end."""
    if not opened and not may_begin(text):  # quick, and so of nearly all texts
        return text
    spelled = text.encode(errors="surrogatepass")
    parts = split(spelled, opened)
    if parts.open or not parts.thoughts:
        return None if parts.open else text
    return b"".join(spelled[start:end] for start, end in parts.answers).decode(
        errors="surrogatepass"
    )


class Cuttable(NamedTuple):
    """The tokens of a thought, from ``start`` to ``end``, without the tags; ``broken``: how many of the tokens of the
    text there are up to each place where a thought ends in the line break with which its closing begins.
    """

    start: int
    end: int
    broken: frozenset[int]


def cuttable(
    pieces: Sequence[bytes], opened: str, closing: bytes, *, forced: bool = False
) -> Cuttable | None:
    """Where the first thought stands in a text of ``pieces``, the bytes of each token; None where none is whole.

    Nor where nothing stands in it.  ``closing``: what is written to end one.  The line break before the closing tag
    belongs to the closing where it is a token of its own.  ``forced``: whether that was written at the thought's limit,
    so that a line break before it is the thought's; a model that ends its thought chose all of its line breaks itself.
    """
    text, edges = b"".join(pieces), [0, *accumulate(map(len, pieces))]
    parts = split(text, opened)
    if not parts.thoughts or (parts.open and len(parts.thoughts) == 1):
        return None
    first, last = parts.thoughts[0]
    tag = next(
        (tag for tag in _OPEN if text.startswith(tag, first) and not (opened and first == 0)), b""
    )
    shut = next((close for close in _OPEN.values() if text.endswith(close, first, last)), b"")
    if not shut or not text[first + len(tag) : last - len(shut)].strip():
        return None
    lead = closing[: len(closing) - len(closing.lstrip())]
    start = bisect_left(edges, first + len(tag))
    end = max(bisect_right(edges, last - len(shut)) - 1, start)
    shorter = edges[end] - len(lead)
    own = (
        bool(lead) and text.endswith(lead, edges[start], edges[end]) and shorter in edges[start:end]
    )
    end = edges.index(shorter, start) if own else end
    last_place = end - 1 if own and not forced else end
    places = range(start + 1, last_place + 1) if lead else ()
    broken = [place for place in places if text.endswith(lead, edges[start], edges[place])]
    return Cuttable(start, end, frozenset(broken))


def left_open(prompt: str) -> str:
    """What begins the thought in which a ``prompt`` ends; empty where it ends in none."""
    tail = prompt[-_TAIL:].rstrip()
    return next((tag for tag in (*TAGS, ANALYSIS) if tail.endswith(tag)), "")


def may_begin(text: str) -> bool:
    """Whether a text holds anything by which a thought is told, as the chat template of a model that thinks does."""
    return any(mark in text for mark in _TOLD)


def _begins_line(before: bytes) -> bool:
    return not before.strip() or before.rstrip(b" \t").endswith(b"\n")


def _outside(thoughts: list[Span], size: int) -> tuple[Span, ...]:
    edges = [0, *(edge for span in thoughts for edge in span), size]
    return tuple(span for span in zip(edges[::2], edges[1::2], strict=True) if span[0] < span[1])


def _split_channels(text: bytes, opened: str) -> Parts:
    """Of gpt-oss: the messages of the channel ``final`` are the answer, everything else is thought."""
    shift = len(opened.encode())
    answers = [
        (match.start(2) - shift, match.end(2) - shift)
        for match in _MESSAGE.finditer(opened.encode() + text)
        if match[1].split()[:1] == [b"final"]
    ]
    return Parts(
        _outside(answers, len(text)),
        tuple(span for span in answers if span[0] < span[1]),
        not answers,
    )
