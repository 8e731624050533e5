"""A model in memory that looks at whole texts: its plain path, where texts of several questions are padded together."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from choicewise.errors import ModelError
from choicewise.models.local import padded_check
from choicewise.models.local.causal_lm import to_device
from choicewise.models.local.path_cache import PathCache
from choicewise.models.local.several_devices import device_name
from choicewise.models.local.workload import Workload
from choicewise.models.selfcheck import SelfCheck
from choicewise.questions import Answers, Ids, Question, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

BATCH_TOKENS = 4096
"""Input tokens computed at once, by default."""

LOGIT_BYTES = {"cpu": 200_000_000, "cuda": 2_000_000_000}
"""Bytes of logits in float32 that a batch may have, by device."""

RUNGS = ("auto", "padded", "plain")
"""``padded``: several texts at once; ``plain``: one at a time; ``auto``: padded, where that is right."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A row of a batch: ``part`` of what question ``index`` needs.

    ``tokens``: the row's input tokens; ``width``: the tokens for which it gives logits.
    """

    index: int
    part: int
    tokens: int
    width: int


@dataclass(eq=False, repr=False)
class PaddedModel(ABC):
    """A transformers model that answers one kind of question, all others being refused with a ModelError.

    ``model`` is the torch module.  ``rung`` is one of :data:`RUNGS`.  ``batch_tokens``: the most input tokens computed
    at once.  The same question has the same answer within the noise of the self-check, whatever else is asked.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    digest: str
    window: int
    rung: str = "auto"
    batch_tokens: int | None = None
    paths: PathCache | None = None
    recipe = None

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ModelError(f"rung is {self.rung!r}; for {type(self).__name__} it must be one of {', '.join(RUNGS)}")
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.device = device_name(self.model)
        self.vocabulary = int(self.model.config.get_text_config().vocab_size)
        self._work = Workload()
        self._checked: SelfCheck | None = None

    @property
    def selfcheck(self) -> SelfCheck | None:
        """How exact the padded path is on this model, as measured last, or now; None where the rung is plain."""
        if self._checked is None and self.rung != "plain":
            self._measure()
        return self._checked

    def check(self, depth: int) -> SelfCheck | None:
        """The self-check, measured when something is first asked; None for a ``depth`` of 0 before that.

        That of another process is taken where ``paths`` has it.
        """
        if depth and self._checked is None and self.rung != "plain":
            self._checked = None if self.paths is None else self.paths.load()
            return self._checked or self.selfcheck
        return self._checked

    def _measure(self) -> None:
        self._checked = padded_check.check(self)
        if self.rung == "padded" and self._checked.rung != "padded":
            raise ModelError(f"{self.name}: {self._checked.trials[0].refused}; choose the rung auto")
        if self.paths is not None:
            self.paths.store(self._checked)

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    def objection(self, question: Question) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def answer(self, questions: Sequence[Question]) -> Answers:
        """The answers, the longest texts first."""
        asked = [self.accepted(question) for question in questions]
        checked = self.check(len(asked))
        self._work.planned = self._work.computed + sum(question.inputs for question in asked)
        padded = checked is not None and checked.rung == "padded"
        try:
            yield from self.scores(asked, padded)
        finally:
            self._work.settle()

    @torch.inference_mode()
    def scores(self, questions: Sequence[Any], padded: bool) -> Answers:
        """The answers, from rows of several questions at once where ``padded``, else from one row at a time."""
        passes = [each for index, question in enumerate(questions) for each in self.passes(index, question)]
        needed, known = Counter(each.index for each in passes), defaultdict[int, dict[int, TokenScores]](dict)
        for batch in self._batches(passes, padded):
            for each, scores in zip(batch, self.compute(questions, batch), strict=True):
                known[each.index][each.part] = scores
                self._work.computed += each.tokens
                if len(known[each.index]) == needed[each.index]:
                    parts = known.pop(each.index)
                    yield each.index, TokenScores.joined([parts[part] for part in sorted(parts)])

    def _batches(self, passes: list[Pass], padded: bool) -> Iterator[list[Pass]]:
        """Passes of about one length together."""
        most = self.batch_tokens or BATCH_TOKENS
        widest = LOGIT_BYTES.get(self.model.device.type, LOGIT_BYTES["cpu"]) // (4 * self.vocabulary)
        batch: list[Pass] = []
        for each in sorted(passes, key=lambda one: (-one.tokens, one.index, one.part)):
            longest = max((one.tokens for one in batch), default=each.tokens)
            width = max(one.width for one in [*batch, each])
            rows = len(batch) + 1
            if batch and (not padded or rows * longest > most or rows * width > widest):
                yield batch
                batch = []
            batch.append(each)
        if batch:
            yield batch

    def ids(self, rows: Sequence[Ids], fill: int = 0) -> tuple[Tensor, Tensor]:
        """Rows padded on the right with ``fill``, and the mask that says which are tokens; int64 [rows, tokens]."""
        tokens = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        return to_device(tokens, self.model.device), to_device(mask, self.model.device)

    def refuse_tokens(self, tokens: Ids) -> None:
        """ModelError for tokens that the model does not know, and for more of them than its window."""
        if len(tokens) > self.window:
            raise ModelError(
                f"{len(tokens)} tokens are too many for {self.name}, whose window is {self.window}; "
                "use a protocol with fewer shots or one that cuts"
            )
        if tokens.max() >= self.vocabulary:
            raise ModelError(
                f"the tokenizer of {self.name} uses token {tokens.max()}, but the model knows only "
                f"{self.vocabulary}; the tokenizer belongs to another model"
            )

    @abstractmethod
    def accepted(self, question: Question) -> Any:
        """``question``, of the kind that the model answers; ModelError for any other."""

    @abstractmethod
    def passes(self, index: int, question: Any) -> list[Pass]:
        """The passes that ``question``, number ``index``, takes."""

    @abstractmethod
    def compute(self, questions: Sequence[Any], batch: Sequence[Pass]) -> Iterator[TokenScores]:
        """The scores of each pass, in order."""

    @abstractmethod
    def plain_scores(self, question: Any) -> TokenScores:
        """The answer without anything that :meth:`compute` does to save time: the reference."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Questions about random tokens that show whether padding changes their answers."""
