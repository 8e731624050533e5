"""What a server says of itself: the model that it serves, its window, its software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from choicewise.errors import ModelError, did_you_mean
from choicewise.models.server.faults import JSON, RESUME, ServerFailed, Unanswerable, failed
from choicewise.models.server.http import Client

NOT_THERE: Final = {404, 405, 501}
"""Statuses of a route that a server does not have."""


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
