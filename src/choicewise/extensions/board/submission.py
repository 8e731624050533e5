"""What may be submitted, and what becomes of it: policy, names, states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from choicewise.bundled import MODELS, PREFIX, bundled_folder, is_bundled
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.models.kinds import model_kind
from choicewise.util.text import holds_secret


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

    ``reason`` says in words why it failed, was refused, or waits again; of one that is done how it was asked otherwise
    than the board says.  ``submitted`` and ``changed``: seconds since
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
    after: float = 0.0

    def as_json(self, runs: Sequence[str] = ()) -> dict[str, Any]:
        """The record with the addresses of its ``runs``; what was not said is null, and times are texts in UTC."""
        wanted, times = (
            self.wanted,
            {"submitted": moment(self.submitted), "changed": moment(self.changed)},
        )
        record = {"id": self.id, "model": wanted.model, "revision": wanted.revision or None}
        record |= {
            "dtype": wanted.dtype or None,
            "state": str(self.state),
            "reason": self.reason,
            **times,
        }
        record |= {name: getattr(self, name) for name in ("worker", "done", "total", "attempts")}
        return {**record, "not_before": moment(self.after) if self.after else None, "runs": [*runs]}


def moment(seconds: float) -> str:
    """A time as ``2026-11-22T14:10:57Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wanted(model: object, revision: object = None, dtype: object = None) -> Wanted:
    """What the three fields say, ``ORG/NAME@REVISION`` split at its sign.  UsageError with everything that is wrong."""
    given = {"model": model, "revision": revision, "dtype": dtype}
    try:
        fields = _Fields.model_validate(
            {name: value for name, value in given.items() if value is not None}
        )
    except ValidationError as error:
        raise UsageError.of_problems([_problem(each) for each in error.errors()]) from None
    name, revision = fields.model, fields.revision
    if not revision and _has_revision(name):
        name, _, revision = name.partition("@")
    return Wanted(name, revision, fields.dtype)


_Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = get_args(_Dtype)

_LONGEST = 200
"""Characters of a model's name."""

_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,99}", re.ASCII)


def _has_revision(name: str) -> bool:
    return "/" in name and not name.startswith(("/", ".")) and not model_kind(name).revisions


def _known_model(text: str) -> str:
    name, _, revision = text.partition("@") if _has_revision(text) else (text, "", "")
    if not name:
        raise ValueError("the model is missing; write its name, as ORG/NAME")
    if len(name) > _LONGEST:
        raise ValueError(f"the model's name has {len(name)} characters; it may have {_LONGEST}")
    if (
        not name.isprintable()
        or any(ord(char) > 0xFFFF for char in name)
        or ".." in re.split(r"[/\\]", name)
    ):
        raise ValueError("the model has characters that no model has; write it as ORG/NAME")
    if holds_secret(text):
        raise ValueError(
            "the model's name holds a login or a key, which the board would show; leave that out"
        )
    _known_revision(revision)
    return text


def _known_revision(text: str) -> str:
    if text and (not _REVISION.fullmatch(text) or ".." in text):
        raise ValueError(
            "the revision must be a branch, a tag or a commit: letters, digits and . _ - + /"
        )
    return text


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, str_strip_whitespace=True, validate_default=True)

    model: Annotated[str, AfterValidator(_known_model)] = ""
    revision: Annotated[str, AfterValidator(_known_revision)] = ""
    dtype: Literal["", _Dtype] = ""


def _problem(error: Any) -> str:
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "literal_error":
            return f"the dtype must be one of {', '.join(DTYPES)}, or empty for the model's own"
        case "string_unicode":
            return f"the {error['loc'][0]} has characters that no model has"
    return f"{error['loc'][0]} must be text"


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


ALLOW = (f"{PREFIX}*", "*/*")
"""The bundled models, and every repository on the Hub; no folder of a worker's machine."""

LARGEST = 20_000_000_000
"""Bytes of the weights."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``allow``: patterns of names (:func:`matches`); ``largest``: bytes of the weights that a model may have.

    Weights must be safetensors, and no code of a model's own runs: that is the same for every board.
    """

    allow: tuple[str, ...] = ALLOW
    largest: int = LARGEST

    def takes(self, model: str) -> bool:
        """Whether models of that name are taken."""
        return any(matches(model, pattern) for pattern in self.allow)


def matches(name: str, pattern: str) -> bool:
    """Whether ``name`` is one that ``pattern`` means.

    ``*`` stands for any characters but ``/`` and ``:``, ``**`` for any at all, and ``?`` for one; a part of a name
    that a sign begins with is not one that begins with a dot.
    """
    return _expression(pattern).fullmatch(name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = []
    for place, piece in enumerate(pieces := re.split(r"(\*\*|\*|\?)", pattern)):
        begins = not "".join(pieces[:place]) or "".join(pieces[:place]).endswith(("/", ":"))
        own = {"**": r".*", "*": r"[^/:]+", "?": r"[^/:]"}.get(piece)
        parts.append(re.escape(piece) if own is None else (r"(?!\.)" if begins else "") + own)
    return re.compile("".join(parts), re.DOTALL)


def refusal(wanted: Wanted) -> str:
    """Why the model can't be evaluated, where that can be told by its name alone; else nothing."""
    if not is_bundled(wanted.model):
        return ""
    if bundled_folder(wanted.model, MODELS) is None:
        bundled = ", ".join(PREFIX + model.name for model in MODELS)
        return f"there is no model {wanted.model}; the bundled ones are {bundled}"
    return f"{wanted.model} has no revisions; leave that out" if wanted.revision else ""


class Busy(StoreError):
    """The queue can't be written for the moment: another process holds it, or its disk is full.  Nothing was lost."""


class LeaseLost(ChoicewiseError):
    """Whoever asks does not hold the submission (any more)."""


class NoToken(ChoicewiseError):
    """Whoever submits has not shown the token."""


class NoSubmission(ChoicewiseError):
    """No submission has that id."""


class NotAllowed(ChoicewiseError):
    """The board takes no models from that source."""
