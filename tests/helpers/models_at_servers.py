"""Models behind servers of the tests, and what they are asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.http import Client
from choicewise.extensions.endpoints.server.server_model import ServerModel
from tests.helpers.answers import ids as ids
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.served_model import VLLM, Ability


def model_at(
    server: Server,
    tokenizer: str | None = "bytes",
    window: int | None = None,
    patience: float = 2.0,
    **options: Any,
) -> ServerModel:
    """The model of ``server``; ``patience`` and ``options`` are those of the client."""
    address = ServerAddress.parse(server.address)
    client = Client(address, None, patience=patience, **options)
    return ServerModel(address, tokenizer=tokenizer, window=window, client=client)


@contextmanager
def served_model(ability: Ability = VLLM, **options: Any) -> Iterator[ServerModel]:
    """The model of a server of its own; ``options`` as of :func:`model_at`."""
    with serving(ability) as server:
        yield model_at(server, **options)
