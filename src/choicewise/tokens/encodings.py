"""The tokens of the texts of many requests, each distinct text encoded once.

Axis ``bos``: with ``default`` a sequence gets what the tokenizer adds by default, with ``none`` nothing.  A text that
itself starts with the BOS gets nothing added, as in the harness, so a BOS is never doubled.  Where nothing precedes the
first scored token, the prefix token does: BOS, or EOS where there is none.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids
from choicewise.tokens.tokenizer import Tokenizer, count


class Encodings:
    """The tokens of the texts of a batch: in ``sequences`` with what ``bos`` adds, in ``plain`` with nothing added.

    ``bare``: the same as ``plain`` without the dummy space that a tokenizer may put before a text by itself; no tokens
    where a text has none without it.  Raises ModelError when the tokenizer appends tokens to every text.
    """

    def __init__(self, tokenizer: Tokenizer, bos: str) -> None:
        self._special = bos == "default"
        if self._special:
            _refuse_suffix(tokenizer)
        self.tokenizer = tokenizer
        self.sequences: dict[str, Ids] = {}
        self.plain: dict[str, Ids] = {}
        self.bare: dict[str, Ids] = {}
        self._lossy: dict[str, bool] = {}

    def add_sequences(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` as sequences."""
        doubled = [self.tokenizer.bos_id] * 2
        added = self._encode(self.sequences, texts, special=self._special)
        if again := [text for text in added if self._special and self.sequences[text][:2].tolist() == doubled]:
            self.sequences.update(zip(again, self.tokenizer.encode(again, special=False), strict=True))

    def add_plain(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` with nothing added."""
        self._encode(self.plain, texts, special=False)

    def add_bare(self, texts: Iterable[str]) -> None:
        """Encode the new ones among ``texts`` without a dummy space: after a line break, which is cut off again."""
        new = [text for text in dict.fromkeys(texts) if text not in self.bare]
        lead = "\n" if self.has_dummy_space else ""
        self.add_plain([lead, *(lead + text for text in new)])
        self.bare.update((text, self._without(lead, text)) for text in new)

    def _without(self, lead: str, text: str) -> Ids:
        before, tokens = self.plain[lead], self.plain[lead + text]
        bare = tokens[len(before) :]
        spaced = self._spelled(bare).startswith(b" ") and not text.startswith(" ")
        return bare[:0] if spaced or not np.array_equal(tokens[: len(before)], before) else bare

    @cached_property
    def has_dummy_space(self) -> bool:
        """Whether a text by itself gets a space before it."""
        self.add_plain(["a"])
        return self._spelled(self.plain["a"]) == b" a"

    def _spelled(self, tokens: Ids) -> bytes:
        return b"".join(self.tokenizer.token_bytes[token] for token in tokens.tolist())

    def _encode(self, known: dict[str, Ids], texts: Iterable[str], *, special: bool) -> list[str]:
        """The new texts, after their tokens were added to ``known``."""
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
        return tokens if tokens[:1].tolist() == prefix.tolist() else np.concatenate([prefix, tokens])

    def is_lossy(self, context: str) -> bool:
        """Whether the tokens of ``context`` spell anything but its text, except for a dummy space at the start."""
        if context not in self._lossy:
            tokens = self.context(context)
            tokens = tokens[count(tokens[:1], self.tokenizer.bos_id) :]
            self._lossy[context] = not spells(self.tokenizer, tokens, "", context, complete=True)
        return self._lossy[context]

    @property
    def prefix_token(self) -> Ids:
        """The one token that a text without context is scored after; ModelError when the tokenizer names none."""
        token = self.tokenizer.eos_id if self.tokenizer.bos_id is None else self.tokenizer.bos_id
        if token is None:
            raise ModelError(
                "the context is empty and the tokenizer names neither a BOS nor an EOS to score after; "
                'name one in tokenizer_config.json ("bos_token") or ask with a context'
            )
        return np.asarray([token], dtype=np.int32)


def spells(tokenizer: Tokenizer, tokens: Ids, context: str, continuation: str, *, complete: bool = False) -> bool:
    """Whether ``tokens`` spell the end of context + continuation or, with ``complete``, all of it.

    The dummy space before a text that is encoded by itself does not count.  The text of special tokens is not known,
    so sequences that hold some pass where nothing is unknown.
    """
    parts = [tokenizer.token_bytes[token] for token in tokens.tolist()]
    if b"" in parts:
        return count(tokens, tokenizer.unknown_id) == 0
    spelled, text = b"".join(parts), (context + continuation).encode()
    if spelled in (b" " + text, b" " + continuation.encode()):
        return True
    return spelled == text if complete else text.endswith(spelled)


def _refuse_suffix(tokenizer: Tokenizer) -> None:
    """ModelError when the default adds a token after the text: the continuation would not follow the context."""
    (plain,), (special,) = (tokenizer.encode(["a"], special=special) for special in (False, True))
    if special[len(special) - len(plain) :].tolist() != plain.tolist():
        raise ModelError(
            f"this tokenizer appends token {int(special[-1])} to every text, so no continuation can follow a context; "
            "use a protocol with bos:none, or a tokenizer made for a causal model"
        )
