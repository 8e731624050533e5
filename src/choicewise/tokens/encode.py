"""The tokens of many texts: each text, and where that is proven right each part of a text, is encoded once.

Axis ``bos``: with ``default`` a sequence gets what the tokenizer adds by default, with ``none`` nothing.  A text that
itself starts with the BOS gets nothing added, as in the harness, so a BOS is never doubled.  Where nothing precedes the
first scored token, the prefix token does: BOS, or EOS where there is none.

The places at which texts are split follow from the pipeline that ``tokenizer.json`` declares, and only pipelines for
which it can be proven have any; the proofs are in ``docs/design/encoding.md``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.tokenizer import Tokenizer, count, declared_steps, spelled

_NONE: Ids = np.empty(0, dtype=np.int32)

_REMEMBERED = 24_000_000
"""Characters of parts that are remembered: more than one subject of MMLU has; with their tokens some 100 MB."""

_TEXTS = 2048  # texts split at once: enough new parts for every thread, few enough to hold all parts in memory
COMPARED = 1000  # texts of which one is also encoded without splitting

_PROBES = (
    "Question: What?\nA. One\nB: two\n\n(C) three\n\nAnswer: A\n\nQ.E.D. is\u00a0it: \nno.\nD) 4\nE. \u0301e\nF.  x",
    "A line.\n\nAnother,  with spaces \n and\ttabs\r\n\r\n  then\n\n\nmore? \n\nA. 1\nB. 23456\nAnswer: A",
    "\nx\n/y\n's\n\n\n z\n\u0301a\nn\u0303\n\u00e9\n\u4f60\n\u597d\n\U0001f469\u200d\U0001f469\n\x00\n\x85\n\u2028\n",
    'def f(x):\n    if x:\n\t\treturn "▁"\n\n}\n\n\nA\nB\n(C)\n~\n!\n0\n',
)
"""Texts with everything that has ever mattered where texts are split."""

_Continued = tuple[str, list[Ids]]
"""The end of a text; the tokens of that end alone, then of that end and each of the texts after it."""

NEWLINE_STARTS = re.compile(
    r"\n(?<=[!-~]\n)"
)  # a newline after a visible ASCII character; the text is split before it
NEWLINE_ENDS = re.compile(
    r"\n(?=[!-~])"
)  # a newline before a visible ASCII character; the text is split after it

_WORD_STARTS = re.compile(r"(?=(?<=[!-~]) [A-Za-z])")
"""Before a space between a visible ASCII character and an ASCII letter."""

_WORD = re.compile(" [A-Za-z]")  # what follows such a place

_LABEL = re.compile(r"\n*[!-~]{1,16}(?<=[.:)])(?= [A-Za-z])")
"""What a line begins with (``Question:``, ``A.``), up to the start of a word."""

_MARKS_AND_SPACE = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"

SPLITS = {
    "Llama 3": _WORDS + r"|\p{N}{1,3}" + _MARKS_AND_SPACE,
    "Qwen 2": _WORDS + r"|\p{N}" + _MARKS_AND_SPACE,
}
"""The expressions by which published tokenizers split a text so that a newline ends a piece."""


class Encodings:
    """The tokens of the texts of a batch: in ``sequences`` with what ``bos`` adds, in ``plain`` with nothing added.

    ``bare``: the same as ``plain`` without the dummy space that a tokenizer may put before a text by itself; no tokens
    where a text has none without it.  ``located``: what :mod:`choicewise.tokens.boundary` remembers of them.
    ``enclosed``: whether whole texts are asked, which may end with what the tokenizer appends to every text:
    ``suffix``, which is in none of these tokens.

    Raises ModelError when the tokenizer appends tokens and texts are not ``enclosed``.
    """

    def __init__(self, tokenizer: Tokenizer, bos: str, enclosed: bool = False) -> None:
        self._special = bos == "default"
        self._front, self.suffix = _added(tokenizer) if self._special else (_NONE, _NONE)
        if len(self.suffix) and not enclosed:
            raise _suffix_error(self.suffix)
        self._enclosed = enclosed
        self.tokenizer = tokenizer
        self.sequences: dict[str, Ids] = {}
        self.plain: dict[str, Ids] = {}
        self.bare: dict[str, Ids] = {}
        self.located: dict[Hashable, Any] = {}
        self._lossy: dict[str, bool] = {}

    def add_sequences(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` as sequences."""
        doubled = [self.tokenizer.bos_id] * 2
        added = self._encode(self.sequences, texts, special=self._special)
        if len(self.suffix):
            self.sequences.update(
                (text, self.sequences[text][: -len(self.suffix)]) for text in added
            )
        if again := [
            text for text in added if self._special and self.sequences[text][:2].tolist() == doubled
        ]:
            self.sequences.update(
                zip(again, self.tokenizer.encode(again, special=False), strict=True)
            )

    def add_plain(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` with nothing added."""
        self._encode(self.plain, texts, special=False)

    def add_bare(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` without a dummy space: after a line break, which is cut off again."""
        new = [text for text in dict.fromkeys(texts) if text not in self.bare]
        lead = "\n" if self.has_dummy_space else ""
        self.add_plain([lead, *(lead + text for text in new)])
        self.bare.update((text, self._without(lead, text)) for text in new)

    def continued(
        self, contexts: Sequence[str], ends: Sequence[Sequence[str]]
    ) -> list[_Continued | None]:
        """As :meth:`PartwiseTokenizer.continued`; None for all where the tokenizer does not split texts."""
        if isinstance(self.tokenizer, PartwiseTokenizer):
            return self.tokenizer.continued(contexts, ends, special=self._special)
        return [None] * len(contexts)

    def _without(self, lead: str, text: str) -> Ids:
        before, tokens = self.plain[lead], self.plain[lead + text]
        bare = tokens[len(before) :]
        spaced = spelled(self.tokenizer, bare).startswith(b" ") and not text.startswith(" ")
        return bare[:0] if spaced or not np.array_equal(tokens[: len(before)], before) else bare

    @cached_property
    def has_dummy_space(self) -> bool:
        """Whether a text by itself gets a space before it."""
        self.add_plain(["a"])
        return spelled(self.tokenizer, self.plain["a"]) == b" a"

    def _encode(self, known: dict[str, Ids], texts: Iterable[str], *, special: bool) -> list[str]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, self.tokenizer.encode(new, special=special), strict=True))
        return new

    def contexts(self, texts: Sequence[str]) -> list[Ids]:
        """Tokens of texts that something follows: at least one each, never a doubled BOS; the new ones in one call."""
        self.add_sequences(texts)
        return [self.context(text) for text in texts]

    def context(self, text: str) -> Ids:
        """Tokens of ``text`` as a sequence, or the prefix token where there are none."""
        return self.sequences[text] if text and len(self.sequences[text]) else self.prefix_token

    def joined(self, context: str, continuation: str) -> Ids:
        """Tokens of the two texts as one, after the prefix token where the context alone has no tokens."""
        tokens = self.sequences[context + continuation] if context else self.plain[continuation]
        if context and len(self.sequences[context]):
            return tokens
        prefix = self.prefix_token
        return (
            tokens if tokens[:1].tolist() == prefix.tolist() else np.concatenate([prefix, tokens])
        )

    @property
    def lossless(self) -> bool:
        """Whether the tokens of all texts so far are known to spell them."""
        return isinstance(self.tokenizer, PartwiseTokenizer) and self.tokenizer.lossless

    def is_lossy(self, context: str) -> bool:
        """Whether the tokens of ``context`` spell anything but its text, except for a dummy space at the start."""
        if self.lossless:
            return False
        if context not in self._lossy:
            tokens = self.context(context)
            front = len(self._front) if self._enclosed else count(tokens[:1], self.tokenizer.bos_id)
            tokens = tokens[front:]
            self._lossy[context] = not spells(self.tokenizer, tokens, "", context, complete=True)
        return self._lossy[context]

    @property
    def prefix_token(self) -> Ids:
        """The one token that a text without context is scored after; ModelError when the tokenizer names none.

        Of enclosed texts that is what the tokenizer puts before them, if anything.
        """
        if self._enclosed and len(self._front):
            return self._front
        token = self.tokenizer.eos_id if self.tokenizer.bos_id is None else self.tokenizer.bos_id
        if token is None:
            raise ModelError(
                "the context is empty and the tokenizer names neither a BOS nor an EOS to score after; "
                'name one in tokenizer_config.json ("bos_token") or ask with a context; '
                "a word that config.json names does not count"
            )
        return np.asarray([token], dtype=np.int32)


class PartwiseTokenizer:
    """A tokenizer that gives what ``inner`` gives, but splits texts and encodes every distinct part only once.

    ``rule`` is None where nothing is proven of ``inner``, or where a probe says otherwise: texts are then not split.
    One in ``COMPARED`` texts, the first of all among them, is also encoded without splitting, and compared.
    ``lossless``: whether the tokens of every text so far are known to spell it.
    """

    def __init__(
        self, inner: Tokenizer, rule: SplitRule | None, *, remembered: int = _REMEMBERED
    ) -> None:
        """``remembered``: how many characters of parts are remembered."""
        self.inner = inner
        self.bos_id, self.eos_id, self.unknown_id = inner.bos_id, inner.eos_id, inner.unknown_id
        self.token_bytes, self.mask_id, self.digest = inner.token_bytes, inner.mask_id, inner.digest
        self.special = inner.special
        self._uncompared, self.lossless = COMPARED, True
        self._limit = remembered
        self._forget()
        self.rule = rule if rule is not None and self._prepare(rule) else None
        self.lossless = self.rule is not None  # the probes have lost text on purpose

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, exactly as ``inner`` gives them.

        Raises ModelError when the longest text has other tokens without splitting, which no known tokenizer causes.
        """
        if self.rule is None or not texts:
            return self.inner.encode(texts, special=special)
        encoded: list[Ids] = []
        for start in range(0, len(texts), _TEXTS):
            encoded += self._encode(self.rule, texts[start : start + _TEXTS], special)
        if self._due(len(texts)):
            longest = max(range(len(texts)), key=lambda index: len(texts[index]))
            self._compare(texts[longest], encoded[longest], special)
        return encoded

    def continued(
        self, starts: Sequence[str], ends: Sequence[Sequence[str]], *, special: bool
    ) -> list[_Continued | None]:
        """For each of ``starts`` its text after the last place to split, and the tokens of that and each of its ends.

        That place is its end where words follow, else its last line break.  Before it these texts all have the same
        tokens, so that they need not be encoded.  None where a text is not split.  Raises ModelError as :meth:`encode`.
        """
        if self.rule is None:
            return [None] * len(starts)
        if self.remembered > self._limit:
            self._forget()
        rule, hazards = self.rule, bool(self.rule.hazards)
        places = [
            0 if hazards and self._hazard.search(start) else rule.last_place(start, own)
            for start, own in zip(starts, ends, strict=True)
        ]
        wanted = [
            [start[place:], *(start[place:] + end for end in own)] if place else []
            for start, place, own in zip(starts, places, ends, strict=True)
        ]
        parts = {text: rule.parts(text) for texts in wanted for text in texts}
        self._learn(rule, chain.from_iterable(parts.values()))
        tokens = {
            text: _joined([self._tokens[part][self._dummy :] for part in own])
            for text, own in parts.items()
            if self._unsplittable.isdisjoint(own)
        }
        continued = [
            (texts[0], [tokens[text] for text in texts])
            if texts and all(text in tokens for text in texts)
            else None
            for texts in wanted
        ]
        split = {
            index: rests
            for index, rests in enumerate(continued)
            if rests is not None and ends[index]
        }
        if split and self._due(len(split)):
            longest = max(split, key=lambda index: len(starts[index]))
            front, back = self._frame if special else (_NONE, _NONE)
            before = self._encode(rule, [starts[longest][: places[longest]]], special=False)[0]
            whole = np.concatenate([front, before, split[longest][1][1], back])
            self._compare(starts[longest] + ends[longest][0], whole, special)
        return continued

    def _due(self, texts: int) -> bool:
        self._uncompared += texts
        if self._uncompared < COMPARED:
            return False
        self._uncompared = 0
        return True

    def _compare(self, text: str, tokens: Ids, special: bool) -> None:
        if not np.array_equal(tokens, self.inner.encode([text], special=special)[0]):
            raise ModelError(
                f"encoded in parts, {text[:80]!r}... has other tokens than as a whole; results with this tokenizer "
                "can't be trusted: please report its tokenizer.json and the version of tokenizers"
            )

    @property
    def chat(self) -> ChatTemplate | None:
        """That of ``inner``."""
        return self.inner.chat

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """As ``inner`` does."""
        return self.inner.words(texts)

    def decode(self, ids: Ids) -> str:
        """As ``inner`` does."""
        return self.inner.decode(ids)

    def _prepare(self, rule: SplitRule) -> bool:
        """Learn what is put around every text; whether the probes have the tokens that they have without splitting."""
        newline, plain = self.inner.encode(["\n", "a"], special=False)
        (framed,) = self.inner.encode(["a"], special=True)
        self._dummy = len(newline) - 1
        front = next(
            (
                at
                for at in range(len(framed))
                if np.array_equal(framed[at : at + len(plain)], plain)
            ),
            None,
        )
        if front is None or self._dummy != int(rule.prefixed):
            return False
        self._frame = framed[:front], framed[front + len(plain) :]
        self._hazard = re.compile("|".join(map(re.escape, rule.hazards)) or r"(?!)")
        return all(
            all(
                map(
                    np.array_equal,
                    self._encode(rule, _PROBES, special),
                    self.inner.encode(_PROBES, special=special),
                )
            )
            for special in (False, True)
        )

    def _encode(self, rule: SplitRule, texts: Sequence[str], special: bool) -> list[Ids]:
        if self.remembered > self._limit:
            self._forget()
        places = [rule.last_paragraph(text) for text in texts]
        heads = [text[:place] for text, place in zip(texts, places, strict=True)]
        tails = [rule.parts(text[place:]) for text, place in zip(texts, places, strict=True)]
        new = [head for head in dict.fromkeys(heads) if head not in self._heads]
        parts = [rule.parts(head) for head in new]
        self._learn(rule, chain.from_iterable([*parts, *tails]))
        self._heads.update(
            (head, self._join("", part, special=False))
            for head, part in zip(new, parts, strict=True)
        )
        self._remember(new)
        encoded = [self._join(head, tail, special) for head, tail in zip(heads, tails, strict=True)]
        if self._unsplittable:
            self.lossless = False  # not looked at
            odd = [
                i
                for i in range(len(texts))
                if not self._unsplittable.isdisjoint((heads[i], *tails[i]))
            ]
            for i, tokens in zip(
                odd, self.inner.encode([texts[i] for i in odd], special=special), strict=True
            ):
                encoded[i] = tokens
        return encoded

    def _forget(self) -> None:
        self._heads: dict[str, Ids] = {"": _NONE}
        self._tokens: dict[str, Ids] = {}
        self._words: dict[str, Ids] = {}
        self._unsplittable: set[str] = set()
        self.remembered = 0

    def _learn(self, rule: SplitRule, parts: Iterable[str]) -> None:
        new = [part for part in dict.fromkeys(parts) if part not in self._tokens]
        if rule.words:
            words = list(map(_WORD_STARTS.split, new))
            self._encode_new(self._words, chain.from_iterable(words))
            self._tokens.update(
                (part, _joined([self._words[word] for word in own]))
                for part, own in zip(new, words, strict=True)
            )
        else:
            self._encode_new(self._tokens, new)
        self._remember(new)

    def _encode_new(self, known: dict[str, Ids], texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        tokens = self.inner.encode(new, special=False)
        known.update(zip(new, tokens, strict=True))
        for text, own in zip(new, tokens, strict=True) if self.lossless else ():
            self.lossless &= (
                spelled(self, own) == (b" " if self._dummy and text else b"") + text.encode()
            )

    def _remember(self, new: Sequence[str]) -> None:
        self._unsplittable.update(text for text in new if self._hazard.search(text))
        self.remembered += sum(map(len, new))

    def _join(self, head: str, parts: Sequence[str], special: bool) -> Ids:
        """Tokens of ``head`` and the ``parts`` after it; only what a text starts with keeps the dummy space."""
        tokens = [self._heads[head], *[self._tokens[part] for part in parts]]
        if self._dummy:
            first = 1 if head else 2
            tokens[first:] = [part[self._dummy :] for part in tokens[first:]]
        return np.concatenate([self._frame[0], *tokens, self._frame[1]] if special else tokens)


def _joined(parts: Sequence[Ids]) -> Ids:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def spells(
    tokenizer: Tokenizer, tokens: Ids, context: str, continuation: str, *, complete: bool = False
) -> bool:
    """Whether ``tokens`` spell the end of context + continuation or, with ``complete``, all of it.

    The dummy space before a text that is encoded by itself does not count.  The text of special tokens is not known,
    so sequences that hold some pass where nothing is unknown.
    """
    parts = [tokenizer.token_bytes[token] for token in tokens.tolist()]
    if b"" in parts:
        return count(tokens, tokenizer.unknown_id) == 0
    given = b"".join(parts)
    # no more than as many characters as there are bytes can be spelled, and contexts are long
    text = ((context if complete else context[-len(given) - 1 :]) + continuation).encode()
    if given in (b" " + text, b" " + continuation.encode()):
        return True
    return given == text if complete else text.endswith(given)


class SplitRule(NamedTuple):
    """Kinds of place at which texts may be split.

    ``newline`` matches the newlines at which to split, before them when ``before``, else after.  With ``words`` they
    may be split at ``_WORD_STARTS``, too.  With ``prefixed`` the tokenizer puts a dummy space before every text it is
    given, which a part from the middle of a text must lose.  A text that contains one of ``hazards`` is never split.
    """

    newline: re.Pattern[str]
    before: bool
    prefixed: bool
    hazards: tuple[str, ...]
    words: bool = False

    def parts(self, text: str) -> list[str]:
        """The parts of ``text``, which joined are the text.  Of words, only one after a line's label begins a part."""
        places = [0]
        starts_line = self.before or not text.startswith("\n")
        if self.words and starts_line and (label := _LABEL.match(text)):
            places.append(label.end())
        if "\n" not in text:
            return [text] if len(places) == 1 else [text[: places[1]], text[places[1] :]]
        for match in self.newline.finditer(text):
            places.append(match.start() if self.before else match.end())
            if self.words and (label := _LABEL.match(text, match.end())):
                places.append(label.end())
        return [
            text[start:end] for start, end in zip(places, [*places[1:], len(text)], strict=True)
        ]

    def last_place(self, text: str, ends: Iterable[str]) -> int:
        """Where ``text`` may be split last whichever of ``ends`` follows it, or 0 where it may not be split.

        That is its end where words follow it, else a newline.
        """
        if self.words and "!" <= text[-1:] <= "~" and all(map(_WORD.match, ends)):
            return len(text)
        end = len(text)
        while (place := text.rfind("\n", 0, end)) >= 0:
            if match := self.newline.match(text, place):
                return match.start() if self.before else match.end()
            end = place
        return 0

    def last_paragraph(self, text: str) -> int:
        """Where the part that begins at the last blank line starts, or 0 where the text is not split there."""
        blank = text.rfind("\n\n")
        match = (
            self.newline.match(text, blank if self.before else blank + 1) if blank >= 0 else None
        )
        return 0 if match is None else match.start() if self.before else match.end()


def find_split_rule(tokenizer: Mapping[str, Any]) -> SplitRule | None:
    """Where texts may be split for the parsed ``tokenizer.json``, or None where nothing is proven of its pipeline."""
    model = tokenizer["model"]
    normalizers, splitters = (
        declared_steps(tokenizer.get(key)) for key in ("normalizer", "pre_tokenizer")
    )
    if (
        model.get("type") != "BPE"
        or model.get("dropout")
        or not all(map(_keeps_newlines, normalizers))
    ):
        return None
    before = True
    match splitters:
        case [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
            level,
        ]:
            before = not (regex in SPLITS.values() and _byte_level(level, use_regex=False))
    prefixed = any(
        step["type"] in ("Prepend", "Metaspace") and step.get("prepend_scheme") != "never"
        for step in (*normalizers, *splitters)
    )
    # GPT-2's own splitting: no piece holds a visible character and then white space
    gpt2 = len(splitters) == 1 and _byte_level(splitters[0], use_regex=True)
    proven = gpt2 or _never_merges_newlines(model, splitters) if before else not prefixed
    newline = NEWLINE_STARTS if before else NEWLINE_ENDS
    added: Sequence[Mapping[str, Any]] = tokenizer.get("added_tokens") or []
    hazards = [
        token
        for token in added
        if prefixed or token["lstrip"] or token["rstrip"] or token["single_word"]
    ]
    if not proven or any(newline.search(token["content"]) for token in added):
        return None
    if not all(_seen_in_text(token, normalizers) for token in hazards):
        return None
    # A space before a letter belongs to the letter's piece in all these expressions, and added tokens hold none.
    words = (gpt2 or not before) and not any(
        _WORD_STARTS.search(token["content"]) for token in added
    )
    return SplitRule(newline, before, prefixed, tuple(token["content"] for token in hazards), words)


def _added(tokenizer: Tokenizer) -> tuple[Ids, Ids]:
    """The tokens that the default puts before and after every text."""
    (plain,), (special,) = (tokenizer.encode(["a"], special=special) for special in (False, True))
    starts = range(
        len(special) - len(plain), -1, -1
    )  # what comes last wins, as most tokenizers append nothing
    at = next((at for at in starts if np.array_equal(special[at : at + len(plain)], plain)), None)
    if at is None:
        raise _suffix_error(special)
    return special[:at], special[at + len(plain) :]


def _suffix_error(suffix: Ids) -> ModelError:
    """The default adds a token after the text: the continuation would not follow the context."""
    return ModelError(
        f"this tokenizer appends token {int(suffix[-1])} to every text, so no continuation can follow a context; "
        "use a protocol with bos:none, or a tokenizer made for a causal model"
    )


def _keeps_newlines(normalizer: Mapping[str, Any]) -> bool:
    """Whether it handles the text before a newline and the text from it on separately, and keeps visible ASCII."""
    match normalizer:
        case {"type": "NFC"} | {"type": "Prepend", "prepend": "▁"}:
            return True
        case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return True
    return False


def _seen_in_text(token: Mapping[str, Any], normalizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a text in which the tokenizer finds the added token contains it before normalisation, too."""
    if not normalizers or not token["normalized"]:
        return True
    composed = any(normalizer["type"] == "NFC" for normalizer in normalizers)
    return not composed and re.fullmatch("[!-~]+", token["content"]) is not None


def _byte_level(splitter: Mapping[str, Any], *, use_regex: bool) -> bool:
    wanted = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}
    return {"use_regex": True, **splitter}.items() >= wanted.items()


def _never_merges_newlines(
    model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether BPE over all of the text never merges a newline with what precedes it, except with newlines."""
    level = any(_byte_level(splitter, use_regex=False) for splitter in splitters)
    whole = level or all(
        splitter["type"] == "Metaspace" and not splitter["split"] for splitter in splitters
    )
    if not whole or len(splitters) > 1:
        return False
    if (
        model.get("ignore_merges")
        or model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix")
    ):
        return False
    newlines = ("Ċ",) if level else ("\n",)
    if newlines[0] not in model["vocab"]:
        if level or not model.get("byte_fallback") or "<0x0A>" not in model["vocab"]:
            return False  # an unknown newline may be fused with other unknown characters
        newlines = ("<0x0A>",)
    return not any(
        right.startswith(newlines) and not left.endswith(newlines)
        for left, right in model["merges"]
    )
