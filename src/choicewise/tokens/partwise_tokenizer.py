"""Tokens of texts that share much: every shared part is encoded once."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids
from choicewise.tokens.split_rule import SplitRule
from choicewise.tokens.tokenizer import Tokenizer

REMEMBERED = 8_000_000
"""Characters of parts that are remembered: all of MMLU's questions; with their tokens they take less than 50 MB."""
TEXTS = 2048
"""Texts split at once: enough new parts for every thread, few enough to hold all parts in memory."""
PROBES = (
    "Question: What?\nA. One\nB: two\n\n(C) three\n\nAnswer: A\n\nQ.E.D. is\u00a0it: \nno.\nD) 4\nE. \u0301e\nF.  x",
    "A line.\n\nAnother,  with spaces \n and\ttabs\r\n\r\n  then\n\n\nmore? \n\nA. 1\nB. 23456\nAnswer: A",
    "\nx\n/y\n's\n\n\n z\n\u0301a\nn\u0303\n\u00e9\n\u4f60\n\u597d\n\U0001f469\u200d\U0001f469\n\x00\n\x85\n\u2028\n",
    'def f(x):\n    if x:\n\t\treturn "▁"\n\n}\n\n\nA\nB\n(C)\n~\n!\n0\n',
)
"""Texts with everything that has ever mattered where texts are split."""


class PartwiseTokenizer:
    """A tokenizer that gives what ``inner`` gives, but splits texts and encodes every distinct part only once.

    ``rule`` is None where nothing is proven of ``inner``, or where a probe says otherwise: texts are then not split.
    One text of every call is also encoded without splitting, and compared.
    """

    def __init__(self, inner: Tokenizer, rule: SplitRule | None, *, remembered: int = REMEMBERED) -> None:
        """``remembered``: how many characters of parts are remembered."""
        self.inner = inner
        self.bos_id, self.eos_id, self.unknown_id = inner.bos_id, inner.eos_id, inner.unknown_id
        self.token_bytes, self.digest = inner.token_bytes, inner.digest
        self._limit = remembered
        self._forget()
        self.rule = rule if rule is not None and self._prepare(rule) else None

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, exactly as ``inner`` gives them.

        Raises ModelError when the longest text has other tokens without splitting, which no known tokenizer causes.
        """
        if self.rule is None or not texts:
            return self.inner.encode(texts, special=special)
        encoded: list[Ids] = []
        for start in range(0, len(texts), TEXTS):
            encoded += self._encode(self.rule, texts[start : start + TEXTS], special)
        longest = max(range(len(texts)), key=lambda index: len(texts[index]))
        self._compare(texts[longest], encoded[longest], special)
        return encoded

    def continued(
        self, starts: Sequence[str], ends: Sequence[Sequence[str]], *, special: bool
    ) -> list[list[Ids] | None]:
        """For each of ``starts`` the tokens after its last line break: of itself, then of itself with each of its ends.

        Before it these texts all have the same tokens, so that they need not be encoded.  None where a text is not
        split.  Raises ModelError as :meth:`encode`.
        """
        if self.rule is None:
            return [None] * len(starts)
        self._forget_too_much()
        hazards = bool(self.rule.hazards)
        places = [0 if hazards and self._hazard.search(start) else self.rule.last_line(start) for start in starts]
        wanted = [
            [start[place:], *(start[place:] + end for end in own)] if place else []
            for start, place, own in zip(starts, places, ends, strict=True)
        ]
        parts = {text: self.rule.parts(text) for texts in wanted for text in texts}
        self._learn(chain.from_iterable(parts.values()))
        tokens = {text: self._join_rest(own) for text, own in parts.items() if self._unsplittable.isdisjoint(own)}
        continued = [
            [tokens[text] for text in texts] if texts and all(text in tokens for text in texts) else None
            for texts in wanted
        ]
        self._compare_longest(starts, ends, places, continued, special)
        return continued

    def _compare_longest(
        self,
        starts: Sequence[str],
        ends: Sequence[Sequence[str]],
        places: Sequence[int],
        continued: Sequence[Sequence[Ids] | None],
        special: bool,
    ) -> None:
        """Compare the longest text that was split with its tokens as a whole."""
        split = [index for index, tokens in enumerate(continued) if tokens is not None and ends[index]]
        if split and self.rule is not None:
            longest = max(split, key=lambda index: len(starts[index]))
            front, back = self._frame if special else (np.empty(0, dtype=np.int32),) * 2
            before = self._encode(self.rule, [starts[longest][: places[longest]]], special=False)[0]
            rest = (continued[longest] or ())[1]
            self._compare(starts[longest] + ends[longest][0], np.concatenate([front, before, rest, back]), special)

    def _compare(self, text: str, tokens: Ids, special: bool) -> None:
        if "\n" in text and not np.array_equal(tokens, self.inner.encode([text], special=special)[0]):
            raise ModelError(
                f"encoded in parts, {text[:80]!r}... has other tokens than as a whole; results with this tokenizer "
                "can't be trusted: please report its tokenizer.json and the version of tokenizers"
            )

    def decode(self, ids: Ids) -> str:
        """As ``inner`` does."""
        return self.inner.decode(ids)

    def _prepare(self, rule: SplitRule) -> bool:
        """Learn what is put around every text; whether the probes have the tokens that they have without splitting."""
        newline, plain = self.inner.encode(["\n", "a"], special=False)
        (framed,) = self.inner.encode(["a"], special=True)
        self._dummy = len(newline) - 1
        front = next((at for at in range(len(framed)) if np.array_equal(framed[at : at + len(plain)], plain)), None)
        if front is None or self._dummy != int(rule.prefixed):
            return False
        self._frame = framed[:front], framed[front + len(plain) :]
        self._hazard = re.compile("|".join(map(re.escape, rule.hazards)) or r"(?!)")
        return all(
            all(map(np.array_equal, self._encode(rule, PROBES, special), self.inner.encode(PROBES, special=special)))
            for special in (False, True)
        )

    def _encode(self, rule: SplitRule, texts: Sequence[str], special: bool) -> list[Ids]:
        self._forget_too_much()
        places = [rule.last_paragraph(text) for text in texts]
        heads = [text[:place] for text, place in zip(texts, places, strict=True)]
        tails = [rule.parts(text[place:]) for text, place in zip(texts, places, strict=True)]
        self._learn_heads(rule, heads)
        self._learn(chain.from_iterable(tails))
        encoded = [self._join(head, tail, special) for head, tail in zip(heads, tails, strict=True)]
        if self._unsplittable:
            again = [i for i in range(len(texts)) if not self._unsplittable.isdisjoint((heads[i], *tails[i]))]
            for i, tokens in zip(again, self.inner.encode([texts[i] for i in again], special=special), strict=True):
                encoded[i] = tokens
        return encoded

    def _forget_too_much(self) -> None:
        if self.remembered > self._limit:
            self._forget()

    def _forget(self) -> None:
        self._heads: dict[str, Ids] = {"": np.empty(0, dtype=np.int32)}
        self._tokens: dict[str, Ids] = {}
        self._unsplittable: set[str] = set()
        self.remembered = 0

    def _learn_heads(self, rule: SplitRule, heads: Iterable[str]) -> None:
        new = [head for head in dict.fromkeys(heads) if head not in self._heads]
        parts = [rule.parts(head) for head in new]
        self._learn(chain.from_iterable(parts))
        self._heads.update((head, self._join("", part, special=False)) for head, part in zip(new, parts, strict=True))
        self._remember(new)

    def _learn(self, parts: Iterable[str]) -> None:
        new = [part for part in dict.fromkeys(parts) if part not in self._tokens]
        self._tokens.update(zip(new, self.inner.encode(new, special=False), strict=True))
        self._remember(new)

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

    def _join_rest(self, parts: Sequence[str]) -> Ids:
        """Tokens of ``parts`` that something precedes."""
        tokens = [self._tokens[part][self._dummy :] for part in parts]
        return tokens[0] if len(tokens) == 1 else np.concatenate(tokens)
