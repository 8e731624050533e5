"""How a harness task is named among protocols: ``lm-eval:NAME`` or ``lm-eval:PATH.yaml``, a metric, and changes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from choicewise.errors import ProtocolError

PREFIX = "lm-eval:"
"""What every such name begins with."""

SHOTS = "shots"
"""The axis that the harness itself changes, as its option for the number of few-shot examples."""

_FILE = re.compile(r"(.*\.ya?ml)(?=$|:|@)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskSelector:
    """A task, group or tag by ``name``, or a task file by its path.

    ``metric``: one of its metrics, all when None.  ``shots``: few-shot examples, the task's own number when None.
    ``changes``: axes that differ, spelled as in ``NAME@AXIS=VALUE``; empty for none.
    """

    name: str
    metric: str | None = None
    shots: int | None = None
    changes: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it names a task file."""
        return self.name.endswith((".yaml", ".yml"))


def is_task(selector: str) -> bool:
    """Whether a selector of protocols names a harness task."""
    return selector.startswith(PREFIX)


def split_tasks(selectors: Iterable[str]) -> tuple[list[str], list[str]]:
    """The selectors that name harness tasks, and the others."""
    every = list(selectors)
    return [each for each in every if is_task(each)], [each for each in every if not is_task(each)]


def parse_task(selector: str) -> TaskSelector:
    """What a selector says: ``lm-eval:arc_easy:acc_norm@shots=5`` (the metric may stand last, too).

    Raises ProtocolError for one that says nothing or is malformed.
    """
    from choicewise.protocols.changed_axes import CHANGES, split_changes  # which a line without tasks does not need

    spelled = selector.removeprefix(PREFIX)
    if match := _FILE.fullmatch(spelled):
        name, rest = match[1], match[2]
    else:
        place = re.search("[:@]", spelled.replace("::", "\0\0"))  # groups inside groups are called GROUP::NAME
        name, rest = (spelled[: place.start()], spelled[place.start() :]) if place else (spelled, "")
    before, changes = split_changes(rest)
    changes, _, last = changes.partition(":")
    metric = before.removeprefix(":") or last or None
    if not name or (CHANGES in rest and not changes) or (last and before):
        raise ProtocolError(
            f"{selector!r} names no task; write {PREFIX}TASK, {PREFIX}TASK:METRIC, {PREFIX}TASK@shots=5 or "
            f"{PREFIX}PATH.yaml"
        )
    own = [change for change in changes.split(",") if change]
    shots = [change.partition("=")[2] for change in own if change.startswith(f"{SHOTS}=")]
    if any(not (each.isascii() and each.isdigit()) for each in shots) or len(shots) > 1:
        raise ProtocolError(f"{selector!r}: {SHOTS} is {', '.join(shots)!r}; it must be one whole number")
    others = ",".join(change for change in own if not change.startswith(f"{SHOTS}="))
    return TaskSelector(name, metric, int(shots[0]) if shots else None, others)
