"""Models that another program computes.

Servers of completions, vLLM's engine, and endpoints that print decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.ports import Analysis, Extension, Loading, ModelKind, PairAnalysis

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.records import Manifest, ServerRecord
    from choicewise.results.run import Run
    from choicewise.table import Table


class Served(ModelKind):
    """``server:URL#NAME``: what a server at that address calls NAME."""

    name = "server"
    takes = frozenset({"window", "tokenizer"})
    because = "is computed by its server"
    workers = "is computed by its server, which needs no further workers"
    revisions = "is the server's choice and has no use for revisions"
    remote = True

    def check(self, name: str) -> None:
        from choicewise.extensions.endpoints.server.address import ServerAddress

        ServerAddress.parse(name)

    def location(self, name: str) -> str:
        from choicewise.extensions.endpoints.server.address import ServerAddress

        return str(ServerAddress.parse(name))

    def display(self, name: str) -> str:
        return self.location(name)

    def folder(self, name: str) -> str:
        from choicewise.extensions.endpoints.server.address import ServerAddress

        return ServerAddress.parse(name).folder

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_client

        need_client()
        from choicewise.extensions.endpoints.server.address import ServerAddress
        from choicewise.extensions.endpoints.server.server_model import ServerModel

        return ServerModel(
            ServerAddress.parse(name), **loading.options, progress=loading.progress, say=loading.say
        )


class Decisions(ModelKind):
    """``decisions:URL#NAME,OPTION=VALUE,...``: an endpoint that answers typed questions with probabilities."""

    name = "decisions"
    because = "is an endpoint"
    workers = "is an endpoint, which needs no further workers"
    revisions = "is the server's choice and has no use for revisions"
    remote = True

    def check(self, name: str) -> None:
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        EndpointName.parse(name)

    def location(self, name: str) -> str:
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        return str(EndpointName.parse(name).address)

    def display(self, name: str) -> str:
        return self.location(name)

    def folder(self, name: str) -> str:
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        return EndpointName.parse(name).address.folder

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_client

        need_client()
        from choicewise.extensions.endpoints.decisions.decision_model import DecisionModel
        from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName

        return DecisionModel(EndpointName.parse(name), say=loading.say)

    def notes(self, folder: Path, manifest: Manifest) -> Iterator[str]:
        from choicewise.extensions.endpoints.decisions.endpoint_report import notes

        return notes(folder, manifest)

    def read_exchange(self, text: str) -> Mapping[str, Any]:
        from choicewise.extensions.endpoints.decisions.exchange import Exchange

        return asdict(Exchange.of(text))

    def exchange_lines(self, exchange: Mapping[str, Any]) -> Iterator[str]:
        from choicewise.extensions.endpoints.decisions.endpoint_report import exchange_lines

        return exchange_lines(exchange)

    def closing_record(self, folder: Path, manifest: Manifest, now: ServerRecord) -> ServerRecord:
        from choicewise.extensions.endpoints.decisions.summary import closing_record

        return closing_record(folder, manifest, now)


class Engine(ModelKind):
    """``vllm:MODEL,OPTION=VALUE,...``: a folder or a name on the Hub that vLLM computes on this machine."""

    name = "vllm"
    takes = frozenset({"dtype", "window", "batch_tokens", "memory"})
    because = "is computed by vLLM"
    workers = (
        "is computed by vLLM, which has workers of its own: name tensor_parallel_size in the model, as"
        " vllm:NAME,tensor_parallel_size=2"
    )
    revisions = "has no use for revisions; name each as vllm:NAME@REVISION"
    remote = True

    def check(self, name: str) -> None:
        from choicewise.extensions.endpoints.vllm.engine_name import EngineName

        EngineName.parse(name)

    def location(self, name: str) -> str:
        from choicewise.extensions.endpoints.vllm.engine_name import EngineName

        return EngineName.parse(name).model

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.extensions.endpoints.packages import need_vllm

        need_vllm(name)
        from choicewise.extensions.endpoints.vllm.engine_model import open_engine

        return open_engine(name, loading)

    def measure_noise(self, model: Model) -> tuple[dict[str, Any], str]:
        from choicewise.extensions.endpoints.vllm.noise import measure_noise

        return measure_noise(model)


class ServedMinusOwn(PairAnalysis):
    """What the layout of a prompt does not explain of a decision endpoint's answers."""

    name = "served-minus-own"
    summary = "a decision endpoint beside own computation"

    def sides(self, left: Run, right: Run) -> tuple[Run, Run] | None:
        """Return the endpoint's run first."""
        from choicewise.extensions.endpoints.decisions.summary import by_endpoint

        return by_endpoint(left, right)

    def compare(self, first: Run, second: Run, protocols: Sequence[str], items: bool) -> list[Any]:
        """Return the differences of probabilities, by kind of question and layout."""
        from choicewise.extensions.endpoints.decisions.summary import served_minus_own

        return served_minus_own(first, second, protocols, items)

    def tables(self, results: Sequence[Any]) -> Iterator[Any]:
        """Yield a table for each kind of question."""
        from choicewise.extensions.endpoints.decisions.decision_report import served_tables

        yield from served_tables(results)


class EndpointAnalysis(Analysis):
    """``choicewise report DIR... endpoint``."""

    name = "endpoint"
    summary = "Show what a decision endpoint said beside its probabilities, and repeats."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return what the endpoint of each run refused, and what is to be believed of its numbers."""
        from choicewise.extensions.endpoints.decisions.endpoint_report import endpoint_tables

        return [table for run in runs for table in endpoint_tables(run)]


EXTENSION = Extension(
    "endpoints", [Served(), Decisions(), Engine(), EndpointAnalysis(), ServedMinusOwn()]
)
