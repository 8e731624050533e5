"""Whether a server's tokens are ours, and what it puts before a text."""

from __future__ import annotations

from collections.abc import Sequence

from choicewise.errors import ModelError
from choicewise.models.server.client import Client
from choicewise.models.server.server_facts import ServerFacts, answer_if_offered
from choicewise.tokens.tokenizer import Tokenizer

TEXTS = (
    "Question: What is it?\nA. One\nB. Two\n\nAnswer: A",
    "  two spaces, a\ttab,\n\n\nlines and 2026 x 1e-5 = 3.14",
    "naïve café, Straße, 你好, 👩‍👩‍👧",
    "def f(x):\n    return {'x': [x]}  # (C) [D]",
)
"""Texts on which tokenizers differ."""


def text_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The tokens that the server puts before a text; None where it does not say, or takes no texts.

    Raises ModelError where it encodes one of ``TEXTS`` to other tokens than ``tokenizer``, called ``name``.
    """
    fronts = set[tuple[int, ...]]()
    for text in TEXTS:
        ours = tokenizer.encode([text], special=False)[0].tolist()
        theirs = _tokens(client, served, text)
        if theirs is None:
            return _counted_front(client, served, tokenizer, name)
        count = len(theirs) - len(ours)
        if count < 0 or theirs[count:] != ours:
            if count > 0 and theirs[: len(ours)] == ours:
                raise ModelError(
                    f"the server puts tokens after every text ({theirs[len(ours) :]}); serve the model without that"
                )
            raise _disagreement(name, text, f"ours are {_few(ours)}, the server's {_few(theirs)}")
        fronts.add(tuple(theirs[:count]))
    if len(fronts) > 1:
        raise ModelError(
            f"the server puts now these, now those tokens before a text ({fronts}); serve the model without that"
        )
    return fronts.pop()


def _tokens(client: Client, served: ServerFacts, text: str) -> list[int] | None:
    """What the server encodes ``text`` to when it is asked as a prompt; None where it does not say."""
    if served.software == "llama-cpp-python":
        body = {"model": served.model, "input": text}
        tokens = answer_if_offered(client, "/extras/tokenize", body).get("tokens")
    else:
        tokens = answer_if_offered(client, "/tokenize", {"model": served.model, "prompt": text}).get("tokens")
    return tokens if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens) else None


def _counted_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The same from how many tokens the server says that it read."""
    more = set[int]()
    for text in TEXTS:
        body = {"model": served.model, "prompt": text, "max_tokens": 1, "temperature": 0}
        usage = answer_if_offered(client, "completions", body).get("usage")
        counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if isinstance(counted, bool) or not isinstance(counted, int) or counted < 0:
            return None
        ours = tokenizer.encode([text], special=False)[0]
        more.add(counted - len(ours))
        if not 0 <= counted - len(ours) <= 1 or len(more) > 1:
            raise _disagreement(name, text, f"ours are {len(ours)}, the server counts {counted}")
    if more == {0}:
        return ()
    if tokenizer.bos_id is None:
        raise ModelError(
            f"the server puts a token before every text, and the tokenizer {name} has no BOS; name another"
        )
    return (tokenizer.bos_id,)


def _disagreement(name: str, text: str, tokens: str) -> ModelError:
    return ModelError(
        f"the tokenizer {name} is not the server's: of {text[:60]!r} the tokens differ ({tokens}); name the tokenizer"
        " of the model that is served"
    )


def _few(tokens: Sequence[int]) -> str:
    shown = str(list(tokens[:12]))
    return shown[:200] + ("…" if len(tokens) > 12 or len(shown) > 200 else "")
