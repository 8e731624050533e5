"""One instance of a HELM run as an item: what was asked of its references, and what HELM says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

from choicewise.errors import DataError
from choicewise.interchange.logs.log import LoggedChoice, LoggedItem
from choicewise.interchange.logs.read.helm_tokens import answered, letter_choices, scored_reference

JOINT: Final = ("multiple_choice_joint", "multiple_choice_joint_chain_of_thought")
"""Adapter methods in which the model writes the letter of an option."""

SEPARATE: Final = ("multiple_choice_separate_original", "multiple_choice_separate_calibrated")
"""Adapter methods in which each reference is scored in a request of its own."""


class Group(NamedTuple):
    """Instances that HELM counts together: those of one train trial, split and perturbation ('' for none)."""

    trial: int
    split: str
    perturbation: str


@dataclass(slots=True)
class Instance:
    """An instance while its requests are read: ``scored`` by the mode of the request and the place of the reference."""

    id: str
    question: str
    references: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str
    scored: dict[tuple[str, int], LoggedChoice] = field(default_factory=dict)
    context: str | None = None
    generated: str | None = None

    def add(self, state: Mapping[str, Any], method: str, place: str) -> None:
        """What one request says."""
        if method in JOINT:
            self._add_letter(state, place)
            return
        index = state.get("reference_index")
        if not isinstance(index, int) or not 0 <= index < len(self.references):
            raise DataError(f"{place} (instance {self.id!r}) asks about reference {index!r} of {len(self.references)}")
        key = (str(state.get("request_mode") or "original"), index)
        if key in self.scored:
            raise DataError(f"{place} (instance {self.id!r}) asks about reference {index} a second time")
        self.scored[key] = scored_reference(state, self.references[index])

    def _add_letter(self, state: Mapping[str, Any], place: str) -> None:
        labels = list(state.get("output_mapping") or ())
        if labels != list(ascii_uppercase[: len(self.references)]):
            raise DataError(f"{place} (instance {self.id!r}) has the labels {labels}; A, B, C and so on are read")
        if self.context is not None:
            raise DataError(f"{place} asks instance {self.id!r} a second time in one trial; import a run of one trial")
        self.context = str((state.get("request") or {}).get("prompt", ""))
        completion, reason = answered(state)
        if completion is None:
            choices = [LoggedChoice(None, missing=reason) for _ in labels]
        else:
            self.generated = str(completion.get("text", ""))
            choices = letter_choices(completion, labels)
        self.scored |= {("original", index): choice for index, choice in enumerate(choices)}

    def item(self, recorded: Mapping[str, float], null: str | None) -> LoggedItem:
        """The item; ``null`` as in :func:`null_context`."""
        choices = [self._choice(index, null) for index in range(len(self.references))]
        contexts = {choice.context for choice in choices if choice.context is not None}
        if len(contexts) == 1:
            self.context = contexts.pop()
            choices = [_without_context(choice) for choice in choices]
        return LoggedItem(
            id=self.id,
            gold=self.gold,
            choices=tuple(choices),
            context=self.context,
            subject=self.subject,
            question=self.question,
            options=self.references,
            generated=self.generated,
            recorded=recorded,
        )

    def _choice(self, index: int, null: str | None) -> LoggedChoice:
        choice = self.scored.get(("original", index))
        if choice is None:
            return LoggedChoice(None, missing="the log has no request about this reference")
        after_null = self.scored.get(("calibration", index))
        if null is None or after_null is None:
            return choice
        return LoggedChoice(
            *(choice.loglikelihood, choice.text, choice.context, choice.tokens, choice.greedy),
            unconditional=after_null.loglikelihood,
            missing=choice.missing,
        )


def _without_context(choice: LoggedChoice) -> LoggedChoice:
    parts = (choice.loglikelihood, choice.text, None, choice.tokens, choice.greedy, choice.unconditional)
    return LoggedChoice(*parts, missing=choice.missing)


def null_context(instances: Sequence[Instance]) -> str | None:
    """The one context of all calibration requests, or None where there is none or they differ."""
    contexts = {
        choice.context
        for instance in instances
        for (mode, _), choice in instance.scored.items()
        if mode == "calibration" and choice.context is not None
    }
    return contexts.pop() if len(contexts) == 1 else None


def new_instance(state: Mapping[str, Any], place: str, subject: str) -> tuple[Group, Instance]:
    """The instance that a request is about, without what was asked.  Raises DataError where it can't be an item."""
    given = state.get("instance")
    if not isinstance(given, dict) or not given.get("id"):
        raise DataError(f"{place} is about no instance with an id; it is no request state of HELM")
    references = [each for each in given.get("references") or () if isinstance(each, dict)]
    gold = tuple(index for index, each in enumerate(references) if "correct" in (each.get("tags") or ()))
    if len(references) < 2:
        raise DataError(
            f"{place}: instance {given['id']!r} has {len(references)} references; only multiple-choice questions can be"
            " imported"
        )
    texts = tuple(str((each.get("output") or {}).get("text", "")) for each in references)
    group = Group(int(state.get("train_trial_index") or 0), str(given.get("split") or ""), perturbation(given))
    question = str((given.get("input") or {}).get("text", ""))
    return group, Instance(str(given["id"]), question, texts, gold, subject or str(given.get("sub_split") or ""))


def perturbation(given: Mapping[str, Any]) -> str:
    """How an instance was changed, in words: the perturbation's name and what else tells it from others."""
    description = given.get("perturbation")
    if not isinstance(description, dict):
        return ""
    changes = [f"{key}={value}" for key, value in description.items() if key not in _KINDS]
    return " ".join([str(description.get("name", "perturbed")), *changes])


_KINDS: Final = frozenset({"name", "robustness", "fairness", "computed_on", "seed"})
"""What a perturbation's description says of its use."""
