"""A callback of the Trainer of transformers that calls :class:`choicewise.InLoop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from choicewise.extensions.training.in_loop import InLoop

Log = Callable[[dict[str, float]], Any]


class InLoopCallback(TrainerCallback):
    """Evaluate the model at every step that is due, and after the last one.

    ``log`` takes the metrics on every rank; ``trainer.log`` passes them to the Trainer's trackers.
    The Trainer's tokenizer (``processing_class``), if it has one, is compared with the bundle's
    before the first step.  An error of :class:`~choicewise.extensions.training.in_loop.InLoop` ends
    the training.
    """

    def __init__(self, in_loop: InLoop, log: Log | None = None) -> None:
        self._in_loop = in_loop
        self._log = log
        self._last = -1

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Raise ModelError if the Trainer's tokenizer is not the bundle's."""
        tokenizer = others.get("processing_class")
        # A processing class of images has no encode.
        if hasattr(tokenizer, "encode"):
            self._in_loop.compare_tokenizer(tokenizer)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Evaluate the model if the step is due."""
        if state.global_step % self._in_loop.every == 0:
            self._evaluate(others["model"], state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Evaluate the model after the last step, if that was not due."""
        if state.global_step != self._last:
            self._evaluate(others["model"], state.global_step)

    def _evaluate(self, model: Any, step: int) -> None:
        self._last = step
        metrics = self._in_loop(model, step)
        if self._log is not None:
            self._log(metrics)
