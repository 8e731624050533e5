"""What a server says of itself: the model that it serves, its window, its software, what it puts before a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from choicewise.errors import ModelError, did_you_mean
from choicewise.models.server.faults import JSON, RESUME, ServerFailed, Unanswerable, failed
from choicewise.models.server.http import Client
from choicewise.tokens.tokenizer import Tokenizer

NOT_THERE: Final = {404, 405, 501}
"""Statuses of a route that a server does not have."""


_TEXTS = (
    "Question: What is it?\nA. One\nB. Two\n\nAnswer: A",
    "  two spaces, a\ttab,\n\n\nlines and 2026 x 1e-5 = 3.14",
    "naïve café, Straße, 你好, 👩‍👩‍👧",
    "def f(x):\n    return {'x': [x]}  # (C) [D]",
)
"""Texts on which tokenizers differ."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``model``: the server's own name; ``root``: where it says that the weights come from, or "".

    ``software``: what the server says that it is, with its version where it says so; "" where it does not.
    ``window``: the most tokens of prompt and answer together, None where it does not say.  ``others``: the other models
    that it lists, name → root.
    """

    model: str
    root: str = ""
    software: str = ""
    window: int | None = None
    others: Mapping[str, str] = field(default_factory=dict)


def read_server_facts(client: Client, name: str | None) -> ServerFacts:
    """The model ``name`` at the server, or the one that it serves.

    Raises ModelError where it serves no such model, or several and none is named; what the client raises.
    """
    try:
        listed = client.get("models").get("data")
    except ServerFailed as error:
        if error.status not in NOT_THERE:
            raise
        if not client.address.url.endswith("/v1") and answer_if_offered(client, "/v1/models"):
            url = f"{client.address.url}/v1"
            raise ModelError(f"{client.address.url} has no models, but {url} has: name that address") from None
        if name is None:
            raise
        return ServerFacts(name)
    except Unanswerable as error:
        failure = failed(f"{client.address.url} does not say what it serves: {error}; {RESUME}", error.status)
        raise failure from None
    entries = listed if isinstance(listed, list) else []
    cards = {card["id"]: card for card in entries if isinstance(card, dict) and isinstance(card.get("id"), str)}
    if name is None and len(cards) != 1:
        known = client.hidden(", ".join(list(cards)[:10])) or "none"
        raise ModelError(f"{client.address.url} serves {len(cards)} models: name one after # in the address ({known})")
    if name is not None and name not in cards:
        known = client.hidden(did_you_mean(name, [*cards]))
        raise ModelError(f"{client.address.url} serves no model {name!r}; {known}")
    own = name or next(iter(cards))
    others = {each: str(card.get("root") or "") for each, card in cards.items() if each != own}
    return replace(_described(client, cards[own]), others=others)


def answer_if_offered(client: Client, path: str, body: JSON | None = None) -> JSON:
    """What the server answers at ``path``; nothing where it has no such route or refuses."""
    try:
        return client.get(path) if body is None else client.post(path, body)
    except Unanswerable:
        return {}
    except ServerFailed as error:
        if error.status in NOT_THERE:
            return {}
        raise


def other_name(served: ServerFacts, named: str | None) -> str:
    """What answers call the model (``named``) where that is another name of it, such as a dated one; else "".

    Raises ModelError where that is another model which the server lists: one whose weights come from elsewhere, as far
    as it says, and whose name does not begin with the one asked for, as a version's does.
    """
    if named is None or named == served.model:
        return ""
    root = served.others.get(named)
    if root is None or named.startswith(served.model) or (root and root == served.root):
        return named
    raise ModelError(
        f"the server answers with its model {named!r} when it is asked for {served.model!r}; name {named!r} if that is"
        " the one to ask, or have the other one served"
    )


def text_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The tokens that the server puts before a text; None where it does not say, or takes no texts.

    Raises ModelError where it encodes one of ``_TEXTS`` to other tokens than ``tokenizer``, called ``name``.
    """
    fronts = set[tuple[int, ...]]()
    for text in _TEXTS:
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


def _described(client: Client, card: Mapping[str, Any]) -> ServerFacts:
    owner, root = str(card.get("owned_by") or ""), str(card.get("root") or "")
    window = card.get("max_model_len")
    match owner:
        case "vllm":
            owner = f"vllm {answer_if_offered(client, '/version').get('version', '')}".strip()
        case "sglang":
            root = str(answer_if_offered(client, "/get_model_info").get("model_path") or root)
        case "llamacpp":
            settings = answer_if_offered(client, "/props").get("default_generation_settings")
            window = settings.get("n_ctx") if isinstance(settings, dict) else None
        case "me":
            tokens = answer_if_offered(client, "/extras/tokenize", {"input": "a"}).get("tokens")
            owner = "llama-cpp-python" if isinstance(tokens, list) else ""
    meta = card.get("meta")
    if window is None and isinstance(meta, dict):
        window = meta.get("n_ctx") or meta.get("n_ctx_train")
    known = isinstance(window, int) and not isinstance(window, bool) and 2 < window < 2**31
    return ServerFacts(str(card["id"]), client.hidden(root), client.hidden(owner), window if known else None)


def _tokens(client: Client, served: ServerFacts, text: str) -> list[int] | None:
    """What the server encodes ``text`` to when it is asked as a prompt; None where it does not say."""
    path, name = ("/extras/tokenize", "input") if served.software == "llama-cpp-python" else ("/tokenize", "prompt")
    tokens = answer_if_offered(client, path, {"model": served.model, name: text}).get("tokens")
    return tokens if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens) else None


def _counted_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The same from how many tokens the server says that it read."""
    more = set[int]()
    for text in _TEXTS:
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
