"""What is made of a tokenizer once, and kept for as long as that is there."""

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

from choicewise.tokens.tokenizer import Tokenizer

Made = TypeVar("Made")


def per_tokenizer(make: Callable[[Tokenizer], Made]) -> Callable[[Tokenizer], Made]:
    """``make``, called once for each tokenizer, however many models answer at once; they are told apart by identity."""
    kept, lock = WeakKeyDictionary[Tokenizer, Made](), Lock()

    @wraps(make)
    def made(tokenizer: Tokenizer) -> Made:
        if (known := kept.get(tokenizer)) is None:
            with lock:
                known = kept.get(tokenizer)
                if known is None:
                    known = kept[tokenizer] = make(tokenizer)
        return known

    return made
