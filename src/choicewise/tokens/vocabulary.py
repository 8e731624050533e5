"""A vocabulary by its bytes: which tokens spell a text, start with it, or begin a word."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cached_property

from choicewise.questions import TokenSet
from choicewise.tokens.per_tokenizer import per_tokenizer
from choicewise.tokens.tokenizer import Tokenizer


class Vocabulary:
    """The tokens of ``tokenizer`` in the order of their bytes.  Tokens that stand for no bytes spell nothing.

    Another process gets it empty, as it is large, and makes it of its own tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._table = tokenizer.token_bytes
        self._eos = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        entries = sorted((spelled, token) for token, spelled in enumerate(self._table) if spelled)
        self._bytes = [spelled for spelled, _ in entries]
        self._ids = [token for _, token in entries]
        self._continuing: dict[bytes, TokenSet] = {}

    def __getstate__(self) -> dict[str, object]:
        return {}

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self._bytes), default=0)

    def spelled(self, tokens: Iterable[int]) -> bytes:
        """The bytes that ``tokens`` stand for."""
        return b"".join(self._table[token] for token in tokens)

    def spelling(self, text: bytes) -> list[int]:
        """The tokens that stand for exactly ``text``; there may be several (``A`` and ``<0x41>``)."""
        return self._ids[bisect_left(self._bytes, text) : bisect_right(self._bytes, text)]

    def continuing(self, text: bytes) -> TokenSet:
        """The tokens whose bytes start with ``text``, itself included."""
        if text not in self._continuing:
            low = bisect_left(self._bytes, text)
            high = bisect_right(self._bytes, text, low, key=lambda spelled: spelled[: len(text)])
            if low == high:
                return TokenSet([])
            self._continuing[text] = TokenSet(self._ids[low:high])
        return self._continuing[text]

    @cached_property
    def spaced(self) -> TokenSet:
        """The tokens by which a word ends and the next may begin: those that start with white space, and EOS."""
        return TokenSet([*(i for i, spelled in enumerate(self._table) if spelled[:1].isspace()), *self._eos])

    @cached_property
    def unspaced(self) -> TokenSet:
        """The tokens by which a word begins after white space or at the start of a text: the others, and EOS."""
        inside = (i for i, spelled in enumerate(self._table) if spelled and not spelled[:1].isspace())
        return TokenSet([*inside, *self._eos])

    @cached_property
    def marks_words(self) -> bool:
        """Whether words begin with their white space (``Ġ``, ``▁``) and do not end with it (``</w>``)."""
        starts = any(spelled[:1].isspace() for spelled in self._bytes)
        ends = any(spelled[-1:].isspace() and not spelled[:1].isspace() for spelled in self._bytes)
        begins = any(spelled[:1].isspace() and not spelled.isspace() for spelled in self._bytes)
        return starts and (begins or not ends)


@per_tokenizer
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, sorted once."""
    return Vocabulary(tokenizer)
