"""The command line as it was typed; one with a login or a key in an address is refused before it is repeated."""

from collections.abc import Sequence
from contextvars import ContextVar
from itertools import pairwise

from choicewise.records.secret_address import refuse_secret

_TEXTS = ("--system", "--context", "--choice", "--premise")
"""Options whose value is a text for the model, in which an address is like any other words."""

_PASSED_ON = "lm-eval"
"""The command whose arguments are for another program."""


typed_words: ContextVar[tuple[str, ...]] = ContextVar("typed_words", default=())
"""The arguments of the command under way, without the name of the program, for the manifests of its runs."""


def refuse_typed_secrets(arguments: Sequence[str]) -> None:
    """UsageError naming the option, where one of ``arguments`` is an address with a login or a key in it."""
    if _PASSED_ON in arguments[:1]:
        return
    for before, word in pairwise(("", *arguments)):
        option, _, value = word.partition("=") if word.startswith("--") else (before, "", word)
        if option not in _TEXTS:
            refuse_secret(value, option if option.startswith("--") else "an argument")
