"""Separates thoughts from answers in generated text: tags of chat templates, and gpt-oss's
channels.

The answer is the text outside the thoughts: nothing that the model showed is lost, and nothing that
it only thought is read.  A thought that never ends leaves no answer.  All indices count bytes, as
the sizes of tokens do.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

TAGS = {"<think>": "</think>", "◁think▷": "◁/think▷", "[THINK]": "[/THINK]"}
"""Beginnings and ends of thoughts: of Qwen3, DeepSeek-R1 and most others; of Kimi; of Magistral."""

ANALYSIS = "<|channel|>analysis<|message|>"
"""The beginning of a thought of gpt-oss."""

ENDS = tuple(text.encode() for text in (*TAGS.values(), "<|channel|>final<|message|>"))
"""The ends of thoughts."""

_CHANNELS = (
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|constrain|>",
)

MARKS = frozenset([*TAGS, *TAGS.values(), *_CHANNELS])
"""Texts that tokenizers may have as special tokens, which have no bytes but mark thoughts."""

_SIGNS = (*TAGS, *TAGS.values(), _CHANNELS[0])
_OPEN = {tag.encode(): close.encode() for tag, close in TAGS.items()}
_TAG = re.compile(b"|".join(map(re.escape, [*_OPEN, *_OPEN.values()])))
_MESSAGE = re.compile(
    rb"<\|channel\|>([^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>(.*?)(?=<\|[a-z]+\|>|\Z)",
    re.DOTALL,
)
# The characters at the end of a prompt in which a thought may begin, white space included.
_TAIL = 200

# Only where one of these is complete does a text begin another part.
_TURNS = (*_OPEN, *_OPEN.values(), b"|>")
_LONGEST_TURN = max(map(len, _TURNS))

Span = tuple[int, int]
"""Start and end (exclusive) in bytes of the text."""


class Parts(NamedTuple):
    """Hold the ``thoughts``, with their tags, and the ``answers`` outside them, in order, none
    empty.

    ``open``: True if the last thought does not end, so that there is no answer.
    """

    thoughts: tuple[Span, ...]
    answers: tuple[Span, ...]
    open: bool

    @property
    def start(self) -> int | None:
        """Return the start of the text after the last thought; None if that does not end."""
        if self.open:
            return None
        return max((end for _, end in self.thoughts), default=0)


def split(text: bytes, opened: str = "") -> Parts:
    """Split a generated ``text``; ``opened``: the tag that the prompt left open
    (:func:`left_open`).

    A closing tag without an opening one ends a thought that began in the prompt.  An opening tag in
    the middle of a line without a closing one, and a closing tag in the middle of an answer, are
    words of the answer.
    """
    if opened == ANALYSIS or text.lstrip().startswith(_CHANNELS[0].encode()):
        return _split_channels(text, opened)
    thoughts: list[Span] = []
    tag = opened.encode()  # of the thought that is open
    start = 0  # of the thought
    end = 0  # of the thought before
    for match in _TAG.finditer(text):
        if tag:
            if match[0] != _OPEN[tag]:
                continue
        elif match[0] in _OPEN:
            tag = match[0]
            start = match.start()
            continue
        else:
            if thoughts and text[end : match.start()].strip():
                continue
            start = end
        end = match.end()
        thoughts.append((start, end))
        tag = b""
    is_open = False
    if tag:
        is_open = tag == opened.encode() or start == end or _begins_line(text[end:start])
    if is_open and start < len(text):
        thoughts.append((start, len(text)))
    return Parts(tuple(thoughts), _outside(thoughts, len(text)), is_open)


def turns(text: bytes | bytearray, length: int) -> bool:
    """Return False if bytes after the first ``length`` do not move the start of a split back."""
    first = max(length - _LONGEST_TURN + 1, 0)
    return any(text.find(turn, first) >= 0 for turn in _TURNS)


def answer(text: str, opened: str = "") -> str | None:
    """Return the answer in a generated ``text``; None if its thought does not end."""
    # Nearly all texts have no thought, which is quick to see.
    if not opened and not may_begin(text):
        return text
    content = text.encode(errors="surrogatepass")
    parts = split(content, opened)
    if parts.open:
        return None
    if not parts.thoughts:
        return text
    answers = b"".join(content[start:end] for start, end in parts.answers)
    return answers.decode(errors="surrogatepass")


class Cuttable(NamedTuple):
    """Locate a thought among the tokens of a text: from ``start`` to ``end``, without its tags.

    ``broken``: the numbers of tokens after which the thought ends in the line break with which its
    closing begins.
    """

    start: int
    end: int
    broken: frozenset[int]


def cuttable(
    pieces: Sequence[bytes], opened: str, closing: bytes, *, forced: bool = False
) -> Cuttable | None:
    """Locate the first thought in a text of ``pieces``, the bytes of each token.

    Returns None if no thought is whole, or if it is empty.  ``closing``: the text that ends a
    thought.  ``forced``: True if it was written at the thought's limit.
    """
    text = b"".join(pieces)
    edges = [0, *accumulate(map(len, pieces))]
    parts = split(text, opened)
    if not parts.thoughts or (parts.open and len(parts.thoughts) == 1):
        return None
    inside = _without_tags(text, parts.thoughts[0], opened)
    if inside is None:
        return None
    first, last = inside
    start = bisect_left(edges, first)
    end = max(bisect_right(edges, last) - 1, start)

    # A line break before the closing tag belongs to the closing, if it is a token.  At the limit it
    # is part of the closing that was written; a model that ends its thought chose its line breaks.
    line_break = closing[: len(closing) - len(closing.lstrip())]
    last_broken = end
    if line_break and text.endswith(line_break, edges[start], edges[end]):
        before = edges[end] - len(line_break)
        if before in edges[start:end]:
            end = edges.index(before, start)
            last_broken = end if forced else end - 1
    broken = []
    if line_break:
        for count in range(start + 1, last_broken + 1):
            if text.endswith(line_break, edges[start], edges[count]):
                broken.append(count)
    return Cuttable(start, end, frozenset(broken))


def _without_tags(text: bytes, thought: Span, opened: str) -> Span | None:
    """Return the span of the text between the tags; None if that is empty, or no tag ends it."""
    start, end = thought
    # A thought that began in the prompt has no opening tag here.
    if start or not opened:
        for tag in _OPEN:
            if text.startswith(tag, start):
                start += len(tag)
                break
    for tag in _OPEN.values():
        if text.endswith(tag, start, end):
            end -= len(tag)
            return (start, end) if text[start:end].strip() else None
    return None


def left_open(prompt: str) -> str:
    """Return the beginning of the thought in which a ``prompt`` ends, or an empty text."""
    tail = prompt[-_TAIL:].rstrip()
    for tag in (*TAGS, ANALYSIS):
        if tail.endswith(tag):
            return tag
    return ""


def may_begin(text: str) -> bool:
    """Return True if a text has a sign of a thought, as chat templates of thinking models have."""
    return any(sign in text for sign in _SIGNS)


def _begins_line(before: bytes) -> bool:
    return not before.strip() or before.rstrip(b" \t").endswith(b"\n")


def _outside(spans: list[Span], size: int) -> tuple[Span, ...]:
    """Return the spans between ``spans``, without empty ones."""
    gaps = []
    start = 0
    for span_start, span_end in spans:
        if start < span_start:
            gaps.append((start, span_start))
        start = span_end
    if start < size:
        gaps.append((start, size))
    return tuple(gaps)


def _split_channels(text: bytes, opened: str) -> Parts:
    """Split a text of gpt-oss: messages of the channel ``final`` are the answer, the rest thought."""
    shift = len(opened.encode())
    finals = []
    for message in _MESSAGE.finditer(opened.encode() + text):
        if message[1].split()[:1] == [b"final"]:
            finals.append((message.start(2) - shift, message.end(2) - shift))
    answers = tuple(span for span in finals if span[0] < span[1])
    return Parts(_outside(finals, len(text)), answers, not finals)
