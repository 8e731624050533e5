"""Who answers for a model: this process, or replicas that stay from one run of the model to its next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from choicewise.errors import ModelError, UsageError
from choicewise.models.model import SERVER, Model
from choicewise.running.executors.crew import Crew
from choicewise.running.executors.distributed import Distributed
from choicewise.running.executors.executor import Executor
from choicewise.running.executors.in_process import InProcess
from choicewise.running.executors.needs import Place
from choicewise.running.executors.parallel import Parallel
from choicewise.running.executors.preparing import Preparation
from choicewise.running.executors.replica import Identity
from choicewise.running.executors.replicas import PATIENCE, Replicas


class Workforce:
    """The replicas that ``parallel`` asks for, started when a model is first asked; they end with the ``with``.

    ``place``: that of the model, where several compute at once on a cluster.  ``patience``: seconds to wait for the
    first where nothing is free; None: for as long as it takes.  ``safe_point`` is called while answers are waited for,
    and may raise.
    """

    def __init__(
        self,
        parallel: Parallel,
        place: Place | None = None,
        patience: float | None = PATIENCE,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.parallel = parallel
        self._place, self._patience, self._safe_point = place, patience, safe_point
        self._model: Model | None = None
        self._placed: Model | None = None
        self._replicas: Replicas | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @contextmanager
    def executor(self, asked: Preparation, say: Callable[[str], None]) -> Iterator[Executor]:
        """Who answers for the model of ``asked``; ``say`` gets a line about replicas that die or are waited for."""
        if self.parallel.here:
            yield InProcess(asked)
            return
        if self._model is not asked.model:
            self._end()  # what it holds, another model may need
            identity, patient = Identity.of(asked.model), self._is_patient
            self._replicas = Replicas(self._crew(asked.model), identity, self._patience, patient)
            self._model = asked.model
        assert self._replicas is not None
        self._replicas.begin(say, self._safe_point)
        yield Distributed(asked, self._replicas)

    def _is_patient(self) -> bool:
        return self._place is not None and self._place.patient

    def _end(self) -> None:
        if self._replicas is not None:
            self._replicas.crew.end()
        self._replicas = self._model = None

    def _crew(self, model: Model) -> Crew:
        workers = self.parallel.workers
        if model.device == SERVER:
            raise UsageError(f"{model.name} is computed by its server, which needs no further workers; leave them out")
        if (recipe := model.recipe) is None:
            raise ModelError(f"{model.name} is in memory alone; pass a folder or a name, so that workers can load it")
        if self.parallel.kind == "ray":
            from choicewise.running.executors.ray_crew import RayCrew

            self._placed = self._placed or model  # a copy of it in another dtype needs another place
            return RayCrew.of(model, recipe, workers, self._place if self._placed is model else None)
        from choicewise.running.executors.local_crew import LocalCrew

        return LocalCrew(recipe, workers or 1, _devices(model))


def _devices(model: Model) -> list[str]:
    """All devices of this machine that are like the one that was taken for ``model`` because nobody named one."""
    if model.recipe is None or model.recipe.options.get("device") or not model.device.startswith("cuda"):
        return []
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]
