"""Encode many texts, and every distinct part of them only once if the tokenizer is proven to allow
that.

Axis ``bos``: with ``default`` a sequence gets what the tokenizer adds by default, with ``none``
nothing.  A text that itself starts with the BOS gets nothing added, as in the harness, so a BOS is
never doubled.  If nothing precedes the first scored token, the prefix token does: BOS, or EOS if
there is none.

The positions at which texts are split follow from the pipeline that ``tokenizer.json`` declares,
and only pipelines for which it can be proven have any; the proofs are in
``docs/design/encoding.md``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids
from choicewise.tokens.tokenizer import Tokenizer, count, declared_steps, spelled
from choicewise.util.jsonio import JsonMapping

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import ChatTemplate

_NONE: Ids = np.empty(0, dtype=np.int32)

_REMEMBERED = 24_000_000
"""Characters of parts that are remembered: more than one subject of MMLU has.

With their tokens some 100 MB.
"""

# Texts that are split at once: enough new parts for every thread, few enough to hold all parts in
# memory.
_TEXTS = 2048

# Of so many texts one is also encoded without splitting.
COMPARED = 1000

_PROBES = (
    "Question: What?\nA. One\nB: two\n\n(C) three\n\nAnswer: A\n\nQ.E.D. is\u00a0it: \nno.\nD) "
    "4\nE. \u0301e\nF.  x",
    "A line.\n\nAnother,  with spaces \n and\ttabs\r\n\r\n  then\n\n\nmore? \n\nA. 1\nB. "
    "23456\nAnswer: A",
    "\nx\n/y\n's\n\n\n "
    "z\n\u0301a\nn\u0303\n\u00e9\n\u4f60\n\u597d\n\U0001f469\u200d\U0001f469\n\x00\n\x85\n\u2028\n",
    'def f(x):\n    if x:\n\t\treturn "▁"\n\n}\n\n\nA\nB\n(C)\n~\n!\n0\n',
)
"""Texts with everything that has ever mattered where texts are split."""

_Continued = tuple[str, list[Ids]]
"""The end of a text; the tokens of that end alone, then of that end and each of the texts after it.
"""

NEWLINE_STARTS = re.compile(r"\n(?<=[!-~]\n)")
"""A newline after a visible ASCII character: the text is split before it."""

NEWLINE_ENDS = re.compile(r"\n(?=[!-~])")
"""A newline before a visible ASCII character: the text is split after it."""

_WORD_STARTS = re.compile(r"(?=(?<=[!-~]) [A-Za-z])")
"""Before a space between a visible ASCII character and an ASCII letter."""

_WORD = re.compile(" [A-Za-z]")
"""The text after such a split."""

_LABEL = re.compile(r"\n*[!-~]{1,16}(?<=[.:)])(?= [A-Za-z])")
"""The label of a line (``Question:``, ``A.``), up to the start of a word."""

_MARKS_AND_SPACE = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"

SPLITS = {
    "Llama 3": _WORDS + r"|\p{N}{1,3}" + _MARKS_AND_SPACE,
    "Qwen 2": _WORDS + r"|\p{N}" + _MARKS_AND_SPACE,
}
"""The expressions by which published tokenizers split a text so that a newline ends a piece."""


class Encodings:
    """The tokens of the texts of a batch: in ``sequences`` with what ``bos`` adds, in ``plain``
    with nothing added.

    ``bare``: plain tokens without the dummy space that a tokenizer may put before a text by itself;
    no tokens for a text that has none without it.  ``located``: what
    :mod:`choicewise.tokens.boundary` and :mod:`choicewise.requests.prompters` have located.
    ``enclosed``: whether whole texts are scored, which may end with what the tokenizer appends to
    every text: ``suffix``, which is in none of these tokens.

    Raises ModelError if the tokenizer appends tokens and texts are not ``enclosed``.
    """

    def __init__(self, tokenizer: Tokenizer, bos: str, enclosed: bool = False) -> None:
        self._special = bos == "default"
        self._front = _NONE
        self.suffix = _NONE
        if self._special:
            self._front, self.suffix = _added(tokenizer)
        if len(self.suffix) and not enclosed:
            raise _suffix_error(self.suffix)
        self._enclosed = enclosed
        self.tokenizer = tokenizer
        self.sequences: dict[str, Ids] = {}
        self.plain: dict[str, Ids] = {}
        self.bare: dict[str, Ids] = {}
        self.located: dict[Hashable, Any] = {}
        self._lossy: dict[str, bool] = {}
        self._joined: set[str] = set()

    def add_sequences(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` as sequences."""
        added = self._encode(self.sequences, texts, special=self._special)
        if len(self.suffix):
            for text in added:
                self.sequences[text] = self.sequences[text][: -len(self.suffix)]
        if not self._special:
            return
        # A text that itself starts with a BOS, such as a chat, has two now.
        two_bos = [self.tokenizer.bos_id] * 2
        doubled = [text for text in added if self.sequences[text][:2].tolist() == two_bos]
        if doubled:
            tokens = self.tokenizer.encode(doubled, special=False)
            self.sequences.update(zip(doubled, tokens, strict=True))

    def add_joined(self, texts: Sequence[str]) -> None:
        """Encode the new ones among ``texts``, contexts with their continuations, as sequences."""
        self._joined.update(texts)
        self.add_sequences(texts)

    def forget_joined(self) -> None:
        """Free the sequences with continuations: hardly two protocols share one, and they are long."""
        for text in self._joined:
            del self.sequences[text]
        self._joined.clear()

    def add_plain(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` with nothing added."""
        self._encode(self.plain, texts, special=False)

    def add_bare(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` without a dummy space: after a line break, which is
        cut off again.
        """
        new = _new_texts(texts, self.bare)
        lead = ""
        if self.has_dummy_space:
            lead = "\n"
        self.add_plain([lead, *(lead + text for text in new)])
        lead_tokens = self.plain[lead]
        unknown = self.tokenizer.unknown_id
        is_lead_unknown = lead_tokens[-1:].tolist() == [unknown]
        for text in new:
            tokens = self.plain[lead + text]
            bare = tokens[len(lead_tokens) :]
            has_space = text.startswith(" ")
            if is_lead_unknown and not has_space:
                # Unknown characters may be fused with the line break, but not with a dummy space.
                self.add_plain([text])
                alone = self.plain[text]
                if alone[1:2].tolist() == [unknown] and spelled(self.tokenizer, alone[:1]) == b" ":
                    bare = alone[1:]
            adds_space = not has_space and spelled(self.tokenizer, bare[:1])[:1] == b" "
            if adds_space or not np.array_equal(tokens[: len(lead_tokens)], lead_tokens):
                bare = _NONE
            self.bare[text] = bare

    def continued(
        self, contexts: Sequence[str], ends: Sequence[Sequence[str]]
    ) -> list[_Continued | None]:
        """Call :meth:`PartwiseTokenizer.continued`, or return None for every context if texts are
        not split.
        """
        if isinstance(self.tokenizer, PartwiseTokenizer):
            return self.tokenizer.continued(contexts, ends, special=self._special)
        return [None] * len(contexts)

    @cached_property
    def has_dummy_space(self) -> bool:
        """Return whether the tokenizer puts a space before a text by itself."""
        self.add_plain(["a"])
        return spelled(self.tokenizer, self.plain["a"]) == b" a"

    def _encode(
        self, tokens_of: dict[str, Ids], texts: Iterable[str], *, special: bool
    ) -> list[str]:
        new = _new_texts(texts, tokens_of)
        if new:
            tokens_of.update(zip(new, self.tokenizer.encode(new, special=special), strict=True))
        return new

    def contexts(self, texts: Sequence[str]) -> list[Ids]:
        """Return the tokens of texts that something follows: at least one each, never a doubled
        BOS.
        """
        self.add_sequences(texts)
        return [self.context(text) for text in texts]

    def context(self, text: str) -> Ids:
        """Return the tokens of ``text`` as a sequence, or the prefix token if it has none."""
        if not text:
            return self.prefix_token
        tokens = self.sequences[text]
        if not len(tokens):
            return self.prefix_token
        return tokens

    def joined(self, context: str, continuation: str) -> Ids:
        """Return the tokens of the two texts as one, after the prefix token if the context alone
        has no tokens.
        """
        if not context:
            tokens = self.plain[continuation]
        else:
            tokens = self.sequences[context + continuation]
            if len(self.sequences[context]):
                return tokens
        prefix = self.prefix_token
        if tokens[:1].tolist() == prefix.tolist():
            return tokens
        return np.concatenate([prefix, tokens])

    @property
    def adds_tokens(self) -> bool:
        """Return whether a sequence has other tokens than its text alone."""
        return bool(len(self._front) or len(self.suffix))

    @property
    def lossless(self) -> bool:
        """Return whether the tokens of all texts so far are proven to spell them."""
        return isinstance(self.tokenizer, PartwiseTokenizer) and self.tokenizer.lossless

    def is_lossy(self, context: str) -> bool:
        """Return whether the tokens of ``context`` spell another text, a dummy space at its start
        aside.
        """
        if self.lossless:
            return False
        if context not in self._lossy:
            tokens = self.context(context)
            front = len(self._front)
            if not self._enclosed:
                front = count(tokens[:1], self.tokenizer.bos_id)
            is_spelled = spells(self.tokenizer, tokens[front:], "", context, complete=True)
            self._lossy[context] = not is_spelled
        return self._lossy[context]

    @property
    def prefix_token(self) -> Ids:
        """Return the one token after which a text without context is scored.

        Enclosed texts are scored after what the tokenizer puts before them, if anything.  Raises
        ModelError if the tokenizer names none.
        """
        if self._enclosed and len(self._front):
            return self._front
        token = self.tokenizer.bos_id
        if token is None:
            token = self.tokenizer.eos_id
        if token is None:
            raise ModelError(
                "the context is empty and the tokenizer names neither a BOS nor an EOS to score "
                "after; "
                'name one in tokenizer_config.json ("bos_token") or ask with a context; '
                "a word that config.json names does not count"
            )
        return np.asarray([token], dtype=np.int32)


class PartwiseTokenizer:
    """A tokenizer that gives what ``inner`` gives, but splits texts and encodes every distinct part
    only once.

    ``rule`` is None if nothing is proven of ``inner``, or if a probe says otherwise: texts are then
    not split.  One in ``COMPARED`` texts, the first of all among them, is also encoded without
    splitting, and compared.  ``lossless``: whether the tokens of every text so far are proven to
    spell it.
    """

    def __init__(
        self, inner: Tokenizer, rule: SplitRule | None, *, remembered: int = _REMEMBERED
    ) -> None:
        """Wrap ``inner``.

        ``remembered``: the most characters of parts that are kept with their tokens.
        """
        self.inner = inner
        self.bos_id = inner.bos_id
        self.eos_id = inner.eos_id
        self.unknown_id = inner.unknown_id
        self.mask_id = inner.mask_id
        self.token_bytes = inner.token_bytes
        self.special = inner.special
        self.digest = inner.digest
        self._uncompared = COMPARED
        self.lossless = True
        self._limit = remembered
        self._forget()
        self.rule: SplitRule | None = None
        if rule is not None and self._prepare(rule):
            self.rule = rule
        # The probes have lost text on purpose.
        self.lossless = self.rule is not None

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Return the token ids of each text, exactly as ``inner`` gives them.

        Raises ModelError if the longest text has other tokens without splitting, which no known
        tokenizer causes.
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
        """Return the text of every start after its last split, and the tokens of that and each of
        its ends.

        The last split is the end of a start if words follow, else its last line break.  Before it
        these texts all have the same tokens, so that they need not be encoded.  None for a text
        that is not split.  Raises ModelError as :meth:`encode`.
        """
        rule = self.rule
        if rule is None:
            return [None] * len(starts)
        # Everything is forgotten at once: bookkeeping of ages would cost more than encoding again.
        if self.remembered > self._limit:
            self._forget()
        splits = []
        texts_of: list[list[str]] = []
        for start, choices in zip(starts, ends, strict=True):
            split = 0
            if not (rule.hazards and self._hazard.search(start)):
                split = rule.last_split(start, choices)
            splits.append(split)
            if split:
                tail = start[split:]
                texts_of.append([tail, *(tail + choice for choice in choices)])
            else:
                texts_of.append([])
        tokens = self._tokens_after_split(rule, chain.from_iterable(texts_of))
        continued: list[_Continued | None] = []
        for texts in texts_of:
            if texts and all(text in tokens for text in texts):
                continued.append((texts[0], [tokens[text] for text in texts]))
            else:
                continued.append(None)
        self._compare_continued(rule, starts, ends, splits, continued, special)
        return continued

    def _tokens_after_split(self, rule: SplitRule, texts: Iterable[str]) -> dict[str, Ids]:
        """Return the tokens that texts have after a split, without those that may not be split
        themselves.
        """
        parts_of = {text: rule.parts(text) for text in dict.fromkeys(texts)}
        self._learn(rule, chain.from_iterable(parts_of.values()))
        tokens = {}
        for text, parts in parts_of.items():
            if self._unsplittable.isdisjoint(parts):
                tokens[text] = _joined([self._tokens[part][self._dummy :] for part in parts])
        return tokens

    def _compare_continued(
        self,
        rule: SplitRule,
        starts: Sequence[str],
        ends: Sequence[Sequence[str]],
        splits: Sequence[int],
        continued: Sequence[_Continued | None],
        special: bool,
    ) -> None:
        rests: dict[int, _Continued] = {}
        for index, rest in enumerate(continued):
            if rest is not None and ends[index]:
                rests[index] = rest
        if not rests or not self._due(len(rests)):
            return
        longest = max(rests, key=lambda index: len(starts[index]))
        _, tokens_of_texts = rests[longest]
        first_choice = tokens_of_texts[1]
        (before,) = self._encode(rule, [starts[longest][: splits[longest]]], special=False)
        tokens = np.concatenate([before, first_choice])
        if special:
            front, back = self._frame
            tokens = np.concatenate([front, tokens, back])
        self._compare(starts[longest] + ends[longest][0], tokens, special)

    def _due(self, texts: int) -> bool:
        self._uncompared += texts
        if self._uncompared < COMPARED:
            return False
        self._uncompared = 0
        return True

    def _compare(self, text: str, tokens: Ids, special: bool) -> None:
        if not np.array_equal(tokens, self.inner.encode([text], special=special)[0]):
            raise ModelError(
                f"encoded in parts, {text[:80]!r}... has other tokens than as a whole; results "
                "with this tokenizer "
                "can't be trusted: please report its tokenizer.json and the version of tokenizers"
            )

    @property
    def chat(self) -> ChatTemplate | None:
        """Return the chat template of ``inner``."""
        return self.inner.chat

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """Return the word numbers that ``inner`` gives."""
        return self.inner.words(texts)

    def decode(self, ids: Ids) -> str:
        """Return the text that ``inner`` gives."""
        return self.inner.decode(ids)

    def _prepare(self, rule: SplitRule) -> bool:
        """Learn what is put around every text, and check that the probes have the tokens of the
        whole text.
        """
        (newline,) = self.inner.encode(["\n"], special=False)
        self._dummy = len(newline) - 1
        if self._dummy != int(rule.prefixed):
            return False
        try:
            self._frame = _added(self.inner)
        except ModelError:
            return False
        self._is_framed = any(map(len, self._frame))
        self._hazard = re.compile("|".join(map(re.escape, rule.hazards)))
        for special in (False, True):
            in_parts = self._encode(rule, _PROBES, special)
            if not all(map(np.array_equal, in_parts, self.inner.encode(_PROBES, special=special))):
                return False
        return True

    def _encode(self, rule: SplitRule, texts: Sequence[str], special: bool) -> list[Ids]:
        if self.remembered > self._limit:
            self._forget()
        heads = []
        tails = []
        for text in texts:
            split = rule.last_paragraph(text)
            heads.append(text[:split])
            tails.append(rule.parts(text[split:]))
        new_heads = _new_texts(heads, self._heads)
        parts_of_heads = [rule.parts(head) for head in new_heads]
        self._learn(rule, chain.from_iterable([*parts_of_heads, *tails]))
        for head, parts in zip(new_heads, parts_of_heads, strict=True):
            self._heads[head] = self._join("", parts, special=False)
        self._remember(new_heads)
        encoded = [self._join(head, tail, special) for head, tail in zip(heads, tails, strict=True)]
        if not self._unsplittable:
            return encoded
        # Texts with a hazard are encoded as a whole, and their bytes are not compared.
        self.lossless = False
        odd = []
        for index, (head, tail) in enumerate(zip(heads, tails, strict=True)):
            if not self._unsplittable.isdisjoint((head, *tail)):
                odd.append(index)
        # These texts hold added tokens that look at their surroundings.
        whole = self.inner.encode([texts[index] for index in odd], special=special)
        for index, tokens in zip(odd, whole, strict=True):
            encoded[index] = tokens
        return encoded

    def _forget(self) -> None:
        self._heads: dict[str, Ids] = {"": _NONE}
        self._tokens: dict[str, Ids] = {}
        self._words: dict[str, Ids] = {}
        self._unsplittable: set[str] = set()
        self.remembered = 0

    def _learn(self, rule: SplitRule, parts: Iterable[str]) -> None:
        new = _new_texts(parts, self._tokens)
        if rule.words:
            words_of_parts = list(map(_WORD_STARTS.split, new))
            self._encode_new(self._words, chain.from_iterable(words_of_parts))
            for part, words in zip(new, words_of_parts, strict=True):
                self._tokens[part] = _joined([self._words[word] for word in words])
        else:
            self._encode_new(self._tokens, new)
        self._remember(new)

    def _encode_new(self, tokens_of: dict[str, Ids], texts: Iterable[str]) -> None:
        new = _new_texts(texts, tokens_of)
        encoded = self.inner.encode(new, special=False)
        tokens_of.update(zip(new, encoded, strict=True))
        if not self.lossless:
            return
        for text, tokens in zip(new, encoded, strict=True):
            expected = text.encode()
            if self._dummy and text:
                expected = b" " + expected
            if spelled(self, tokens) != expected:
                self.lossless = False
                return

    def _remember(self, new: Sequence[str]) -> None:
        if self._hazard.pattern:
            self._unsplittable.update(filter(self._hazard.search, new))
        self.remembered += sum(map(len, new))

    def _join(self, head: str, parts: Sequence[str], special: bool) -> Ids:
        """Join the tokens of ``head`` and of the ``parts``.

        Only the start of the text keeps the dummy space.
        """
        tokens = [self._tokens[part] for part in parts]
        if head:
            tokens.insert(0, self._heads[head])
        if self._dummy:
            tokens[1:] = [part[self._dummy :] for part in tokens[1:]]
        if special and self._is_framed:
            front, back = self._frame
            tokens = [front, *tokens, back]
        return _joined(tokens)


def _new_texts(texts: Iterable[str], tokens_of: Mapping[str, Ids]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text not in tokens_of]


def _joined(parts: Sequence[Ids]) -> Ids:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts)


def spells(
    tokenizer: Tokenizer, tokens: Ids, context: str, continuation: str, *, complete: bool = False
) -> bool:
    """Return whether ``tokens`` spell the end of context + continuation or, with ``complete``, all
    of it.

    The dummy space before a text that is encoded by itself does not count.  The text of special
    tokens is not known, so sequences that hold some pass if nothing is unknown.
    """
    parts = [tokenizer.token_bytes[token] for token in tokens.tolist()]
    if b"" in parts:
        return count(tokens, tokenizer.unknown_id) == 0
    given = b"".join(parts)
    if not complete:
        # No more than as many characters as there are bytes can be spelled, and contexts are long.
        context = context[-len(given) - 1 :]
    text = (context + continuation).encode()
    if given in (b" " + text, b" " + continuation.encode()):
        return True
    if complete:
        return given == text
    return text.endswith(given)


class SplitRule(NamedTuple):
    """The positions at which texts may be split.

    ``newline`` matches the newlines at which to split, before them if ``before``, else after.  With
    ``words`` they may be split at ``_WORD_STARTS``, too.  With ``prefixed`` the tokenizer puts a
    dummy space before every text it is given, which a part from the middle of a text must lose.  A
    text that contains one of ``hazards`` is never split.
    """

    newline: re.Pattern[str]
    before: bool
    prefixed: bool
    hazards: tuple[str, ...]
    words: bool = False

    def parts(self, text: str) -> list[str]:
        """Split ``text`` into parts, at newlines and between the label of a line and its words."""
        splits = [0]
        if self.words and (self.before or not text.startswith("\n")):
            label = _LABEL.match(text)
            if label:
                splits.append(label.end())
        if "\n" not in text:
            if len(splits) == 1:
                return [text]
            return [text[: splits[1]], text[splits[1] :]]
        for newline in self.newline.finditer(text):
            splits.append(self._split_at(newline))
            if self.words:
                label = _LABEL.match(text, newline.end())
                if label:
                    splits.append(label.end())
        ends = [*splits[1:], len(text)]
        return [text[start:end] for start, end in zip(splits, ends, strict=True)]

    def last_split(self, text: str, ends: Iterable[str]) -> int:
        """Return the last position at which ``text`` is split whichever of ``ends`` follows, 0 if
        there is none.

        That is its end if words follow it, else a newline.
        """
        if self.words and "!" <= text[-1:] <= "~" and all(map(_WORD.match, ends)):
            return len(text)
        position = text.rfind("\n")
        while position >= 0:
            newline = self.newline.match(text, position)
            if newline:
                return self._split_at(newline)
            position = text.rfind("\n", 0, position)
        return 0

    def last_paragraph(self, text: str) -> int:
        """Return where the part that begins at the last blank line starts, or 0 if the text is not
        split there.
        """
        blank = text.rfind("\n\n")
        if blank < 0:
            return 0
        newline = self.newline.match(text, blank if self.before else blank + 1)
        if newline is None:
            return 0
        return self._split_at(newline)

    def _split_at(self, newline: re.Match[str]) -> int:
        return newline.start() if self.before else newline.end()


def find_split_rule(tokenizer: JsonMapping) -> SplitRule | None:
    """Return where texts may be split by the parsed ``tokenizer.json``, None if nothing is proven
    of its pipeline.
    """
    model = tokenizer["model"]
    if model.get("type") != "BPE" or model.get("dropout"):
        return None
    normalizers = declared_steps(tokenizer.get("normalizer"))
    splitters = declared_steps(tokenizer.get("pre_tokenizer"))
    if not all(map(_keeps_newlines, normalizers)):
        return None
    prefixed = False
    for step in (*normalizers, *splitters):
        puts_space = step["type"] in ("Prepend", "Metaspace")
        prefixed |= puts_space and step.get("prepend_scheme") != "never"
    before = not _newlines_end_pieces(splitters)
    # GPT-2's own splitting: no piece holds a visible character and then white space.
    is_gpt2 = len(splitters) == 1 and _byte_level(splitters[0], use_regex=True)
    newline = NEWLINE_STARTS
    proven = is_gpt2 or _never_merges_newlines(model, splitters)
    if not before:
        newline = NEWLINE_ENDS
        proven = not prefixed
    if not proven:
        return None
    return _rule_for_added(
        tokenizer.get("added_tokens") or [],
        normalizers,
        SplitRule(newline, before, prefixed, hazards=(), words=is_gpt2 or not before),
    )


def _rule_for_added(
    added: Sequence[JsonMapping], normalizers: Sequence[JsonMapping], rule: SplitRule
) -> SplitRule | None:
    """Return ``rule`` with the hazards among the added tokens, None if one of them is in the way of
    splitting.
    """
    contents = [token["content"] for token in added]
    if any(map(rule.newline.search, contents)):
        return None
    hazards = []
    for token in added:
        looks_around = token["lstrip"] or token["rstrip"] or token["single_word"]
        if rule.prefixed or looks_around:
            hazards.append(token)
            if not _seen_in_text(token, normalizers):
                return None
    # A space before a letter belongs to the letter's piece in all these expressions, and added
    # tokens hold none.
    words = rule.words and not any(map(_WORD_STARTS.search, contents))
    return rule._replace(hazards=tuple(token["content"] for token in hazards), words=words)


def _added(tokenizer: Tokenizer) -> tuple[Ids, Ids]:
    """Return the tokens that the default puts before and after every text.

    ModelError if they can't be told.
    """
    (plain,) = tokenizer.encode(["a"], special=False)
    (special,) = tokenizer.encode(["a"], special=True)
    # The last match counts, as most tokenizers append nothing.
    for start in range(len(special) - len(plain), -1, -1):
        end = start + len(plain)
        if np.array_equal(special[start:end], plain):
            return special[:start], special[end:]
    raise _suffix_error(special)


def _suffix_error(suffix: Ids) -> ModelError:
    """Return the error of a tokenizer that adds a token after the text: no continuation would
    follow the context.
    """
    return ModelError(
        f"this tokenizer appends token {int(suffix[-1])} to every text, so no continuation can "
        "follow a context; "
        "use a protocol with bos:none, or a tokenizer made for a causal model"
    )


def _keeps_newlines(normalizer: JsonMapping) -> bool:
    """Return whether it handles the texts before and from a newline on separately, and keeps
    visible ASCII.
    """
    match normalizer:
        case {"type": "NFC"} | {"type": "Prepend", "prepend": "▁"}:
            return True
        case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return True
    return False


def _newlines_end_pieces(splitters: Sequence[JsonMapping]) -> bool:
    match splitters:
        case [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
            level,
        ]:
            return regex in SPLITS.values() and _byte_level(level, use_regex=False)
    return False


def _seen_in_text(token: JsonMapping, normalizers: Sequence[JsonMapping]) -> bool:
    """Return whether a text in which the tokenizer finds the added token contains it before
    normalisation, too.
    """
    if not normalizers or not token["normalized"]:
        return True
    if any(normalizer["type"] == "NFC" for normalizer in normalizers):
        return False
    return re.fullmatch("[!-~]+", token["content"]) is not None


def _byte_level(splitter: JsonMapping, *, use_regex: bool) -> bool:
    wanted = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}
    return {"use_regex": True, **splitter}.items() >= wanted.items()


def _never_merges_newlines(model: JsonMapping, splitters: Sequence[JsonMapping]) -> bool:
    """Return whether BPE over all of the text never merges a newline with what precedes it, except
    with newlines.
    """
    if len(splitters) > 1:
        return False
    is_byte_level = False
    for splitter in splitters:
        is_byte_level = _byte_level(splitter, use_regex=False)
        if not is_byte_level and (splitter["type"] != "Metaspace" or splitter["split"]):
            return False
    for option in ("ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            return False
    newline = "\n"
    if is_byte_level:
        newline = "Ċ"
    if newline not in model["vocab"]:
        # An unknown newline may be fused with other unknown characters.
        newline = "<0x0A>"
        if is_byte_level or not model.get("byte_fallback") or newline not in model["vocab"]:
            return False
    for left, right in model["merges"]:
        if right.startswith(newline) and not left.endswith(newline):
            return False
    return True
