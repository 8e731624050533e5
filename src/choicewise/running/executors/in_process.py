"""The executor in this process: one shard after the other, the next block rendered and tokenized meanwhile."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from choicewise.models.model import Model
from choicewise.models.selfcheck import SelfCheck
from choicewise.records.rows import ObservationRow
from choicewise.requests.blocks import Block
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.running.executors.executor import BlockResult
from choicewise.running.executors.preparing import Preparation
from choicewise.running.executors.shards import cut_shards, shard_tokens
from choicewise.running.observe import observe
from choicewise.store.keys import Keys


@dataclass
class InProcess:
    """Asks the model that ``asked`` names."""

    asked: Preparation

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The model's own, as measured so far."""
        return self._model.check(0)

    @property
    def _model(self) -> Model:
        return self.asked.model

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""
        return self._model.computed

    @property
    def requests(self) -> int:
        """Requests to a server so far; 0 for a model that runs here."""
        return getattr(self._model, "requests", 0)

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""
        return self._model.planned

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block; the model is loaded while the first block is rendered."""
        if not blocks:
            return
        with self.asked.ready(blocks) as upcoming:
            self._model.check(0)
            for ready in upcoming:
                prepared = ready.prepared
                new = frozenset(observed.without(list(prepared.wanted)))
                self._model.check(prepared.deepest if new else 0)
                rows = prepared.inputs, prepared.requests, prepared.spans
                yield BlockResult(ready.block, *rows, len(new), self._answers(ready.shards, new))
                observed.add(new)

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[ObservationRow]:
        """One observation per question, as they are answered."""
        return self._answers(cut_shards(questions, shard_tokens(self._model.device)), questions.keys())

    def _answers(self, shards: Iterable[Mapping[str, BlockQuestion]], wanted: Set[str]) -> Iterator[ObservationRow]:
        for shard in shards:
            yield from observe(self._model, {key: shard[key] for key in shard if key in wanted})
