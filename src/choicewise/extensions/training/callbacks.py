"""The bundle of :class:`choicewise.InLoop` asked from the Trainer of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from choicewise.extensions.training.in_loop import InLoop

Log = Callable[[dict[str, float]], Any]


class InLoopCallback(TrainerCallback):
    """Asks the bundle at every step that is due, and after the last one.

    ``log`` takes the metrics on every rank: ``trainer.log`` brings them to whatever the Trainer reports to.  The
    Trainer's tokenizer (``processing_class``), if it has one, is compared with the bundle's before the first step.
    Raises as :class:`~choicewise.extensions.training.in_loop.InLoop`, which ends the training.
    """

    def __init__(self, in_loop: InLoop, log: Log | None = None) -> None:
        self._in_loop, self._log, self._last = in_loop, log, -1

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Refuse another tokenizer."""
        if hasattr(tokenizer := others.get("processing_class"), "encode"):
            self._in_loop.compare_tokenizer(tokenizer)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Ask where it is due."""
        if state.global_step % self._in_loop.every == 0:
            self._ask(others["model"], state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Ask after the last step, if that was not due."""
        if state.global_step != self._last:
            self._ask(others["model"], state.global_step)

    def _ask(self, model: Any, step: int) -> None:
        self._last = step
        metrics = self._in_loop(model, step)
        if self._log is not None:
            self._log(metrics)
