"""Register models that other programs compute: servers, vLLM's engine and decision endpoints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from choicewise.ports import Analysis, Extension, Loading, ModelKind, PairAnalysis, calls

if TYPE_CHECKING:
    from choicewise.extensions.endpoints.server.address import ServerAddress
    from choicewise.extensions.endpoints.vllm.engine_name import EngineName
    from choicewise.models.model import Model


class _AtAddress(ModelKind):
    """A model that a server at an address computes."""

    revisions = "is chosen by the server and takes no revisions"
    remote = True

    def address(self, name: str) -> ServerAddress:
        """Return the address in ``name``; raise ModelError."""
        raise NotImplementedError

    def check(self, name: str) -> None:
        self.address(name)

    def location(self, name: str) -> str:
        return str(self.address(name))

    def display(self, name: str) -> str:
        return self.location(name)

    def folder(self, name: str) -> str:
        return self.address(name).folder

    examine = calls("choicewise.extensions.endpoints.commands:examine")


class Served(_AtAddress):
    """``server:URL#NAME``: what a server at that address calls NAME."""

    name = "server"
    takes = frozenset({"window", "tokenizer"})
    because = "is computed by its server"
    workers = "is computed by its server, which needs no further workers"

    def address(self, name: str) -> ServerAddress:
        from choicewise.extensions.endpoints.server.address import ServerAddress

        return ServerAddress.parse(name)

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_client

        need_client()
        from choicewise.extensions.endpoints.server.server_model import ServerModel

        address = self.address(name)
        return ServerModel(address, **loading.options, progress=loading.progress, say=loading.say)


class Decisions(_AtAddress):
    """``decisions:URL#NAME,OPTION=VALUE,...``: an endpoint that gives probabilities."""

    name = "decisions"
    because = "is an endpoint"
    workers = "is an endpoint, which needs no further workers"

    def address(self, name: str) -> ServerAddress:
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        return EndpointName.parse(name).address

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_client

        need_client()
        from choicewise.extensions.endpoints.decisions.decision_model import DecisionModel
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        return DecisionModel(EndpointName.parse(name), say=loading.say)

    notes = calls("choicewise.extensions.endpoints.decisions.endpoint_report:notes")

    read_exchange = calls("choicewise.extensions.endpoints.decisions.exchange:read_exchange")
    exchange_lines = calls(
        "choicewise.extensions.endpoints.decisions.endpoint_report:exchange_lines"
    )
    closing_record = calls("choicewise.extensions.endpoints.decisions.summary:closing_record")


class Engine(ModelKind):
    """``vllm:MODEL,OPTION=VALUE,...``: a folder or a name on the Hub that vLLM computes here."""

    name = "vllm"
    takes = frozenset({"dtype", "window", "batch_tokens", "memory"})
    because = "is computed by vLLM"
    workers = ""
    revisions = "takes no revisions; name vllm:NAME@REVISION for each"
    remote = True

    def parsed(self, name: str) -> EngineName:
        """Return the parts of ``name``; raise ModelError."""
        from choicewise.extensions.endpoints.vllm.engine_name import EngineName

        return EngineName.parse(name)

    def check(self, name: str) -> None:
        self.parsed(name)

    def location(self, name: str) -> str:
        return self.parsed(name).model

    def gpus(self, name: str) -> int:
        options = self.parsed(name).options
        sizes = [options.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline", "data")]
        return math.prod(sizes)

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_vllm

        need_vllm(name)
        from choicewise.extensions.endpoints.vllm.engine_model import open_engine

        return open_engine(name, loading)

    measure_noise = calls("choicewise.extensions.endpoints.vllm.noise:measure_noise")


class ServedMinusOwn(PairAnalysis):
    """What the layout of a prompt does not explain of a decision endpoint's answers."""

    name = "served-minus-own"
    summary = "a decision endpoint beside our computation"
    sides = calls("choicewise.extensions.endpoints.decisions.summary:by_endpoint")
    compare = calls("choicewise.extensions.endpoints.decisions.summary:served_minus_own")
    tables = calls("choicewise.extensions.endpoints.decisions.decision_report:served_tables")


class EndpointAnalysis(Analysis):
    """``choicewise report DIR... endpoint``."""

    name = "endpoint"
    summary = "Show what a decision endpoint returned beside probabilities, and repeats."
    needs = "runs"
    run_tables = calls("choicewise.extensions.endpoints.decisions.endpoint_report:endpoint_tables")


EXTENSION = Extension(
    "endpoints", [Served(), Decisions(), Engine(), EndpointAnalysis(), ServedMinusOwn()]
)
