"""A submission: a model that a board is asked to evaluate, and how far that is."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from choicewise.errors import UsageError
from choicewise.records.secret_address import holds_secret

LONGEST = 200
"""Characters of a model's name."""

DTYPES = ("float32", "bfloat16", "float16")

_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,99}", re.ASCII)


class State(StrEnum):
    """How far a submission is."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def words(self) -> str:
        """As people read it."""
        return "running" if self is State.LEASED else self.value

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it."""
        return self not in (State.WAITING, State.LEASED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants evaluated: the ``model``, and its ``revision`` and ``dtype``, empty where not said."""

    model: str
    revision: str = ""
    dtype: str = ""

    @property
    def name(self) -> str:
        """As it is named to be loaded."""
        return f"{self.model}@{self.revision}" if self.revision else self.model


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission at one moment.

    ``reason`` says in words why it failed, was refused, or waits again.  ``submitted`` and ``changed``: seconds since
    1970 by the board's clock.  ``worker`` has it or had it last; ``done`` of ``total`` is what that one says of its
    work.  ``attempts``: how often a worker took it.  ``folder``: of its runs, empty until they are there.  ``after``:
    before that time no worker gets it; 0 where one may.
    """

    id: str
    wanted: Wanted
    state: State
    reason: str
    submitted: float
    changed: float
    worker: str = ""
    done: int = 0
    total: int = 0
    attempts: int = 0
    folder: str = ""
    runs: tuple[str, ...] = field(default=())
    after: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The record; what was not said is null, and times are texts in UTC."""
        wanted = self.wanted
        return {
            "id": self.id,
            "model": wanted.model,
            "revision": wanted.revision or None,
            "dtype": wanted.dtype or None,
            "state": str(self.state),
            "reason": self.reason,
            "submitted": moment(self.submitted),
            "changed": moment(self.changed),
            "worker": self.worker,
            "done": self.done,
            "total": self.total,
            "attempts": self.attempts,
            "not_before": moment(self.after) if self.after else None,
            "runs": [*self.runs],
        }


def moment(seconds: float) -> str:
    """A time as ``2026-11-22T14:10:57Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wanted(model: object, revision: object = None, dtype: object = None) -> Wanted:
    """What the three fields say, ``ORG/NAME@REVISION`` taken apart.  UsageError with everything that is wrong."""
    texts = {"model": model, "revision": revision, "dtype": dtype}
    if wrong := [name for name, value in texts.items() if value is not None and not isinstance(value, str)]:
        raise UsageError(f"{' and '.join(wrong)} must be text")
    name, commit, arithmetic = (str(value or "").strip() for value in texts.values())
    if not commit and "/" in name and not name.startswith(("server:", "/", ".")):
        name, _, commit = name.partition("@")
    problems = [*_model_problems(name)]
    if commit and (not _REVISION.fullmatch(commit) or ".." in commit):
        problems.append("the revision must be a branch, a tag or a commit: letters, digits and . _ - + /")
    if arithmetic and arithmetic not in DTYPES:
        problems.append(f"the dtype must be one of {', '.join(DTYPES)}, or empty for the model's own")
    if problems:
        raise UsageError.about(problems)
    return Wanted(name, commit, arithmetic)


def _model_problems(name: str) -> list[str]:
    if not name:
        return ["the model is missing; write its name, as ORG/NAME"]
    if len(name) > LONGEST:
        return [f"the model's name has {len(name)} characters; it may have {LONGEST}"]
    if not name.isprintable() or any(ord(char) > 0xFFFF for char in name) or ".." in re.split(r"[/\\]", name):
        return ["the model's name has characters that no model has; write it as ORG/NAME"]
    if holds_secret(name):
        return ["the model's name holds a login or a key, which the board would show; leave that out"]
    return []
