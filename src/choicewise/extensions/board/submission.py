"""Describe submitted models: their names and states, and the policy that takes or refuses them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.models.kinds import model_kind
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import holds_secret


@dataclass(frozen=True)
class Wanted:
    """Name a model that somebody wants evaluated, with its ``revision`` and ``dtype``, which may be
    empty.
    """

    model: str
    revision: str = ""
    dtype: str = ""

    @property
    def name(self) -> str:
        """Return the name by which it is loaded."""
        if not self.revision:
            return self.model
        return f"{self.model}@{self.revision}"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Describe a submission at one moment.

    ``reason``: why it failed, was refused, or waits again; for one that is done, how it was
    evaluated otherwise than the board says. ``submitted``, ``changed``: seconds since 1970 by the
    board's clock. ``worker`` has it or had it last, and has ``done`` so much of ``total``.
    ``attempts``: how often a worker took it. ``folder``: that of its runs, empty until they are
    there. ``after``: the time before which no worker gets it, 0 if one may.
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

    def as_json(self, runs: Sequence[str] = ()) -> JsonDict:
        """Return a record with the addresses of its ``runs``; what is empty is null, and times are
        texts in UTC.
        """
        not_before = None
        if self.after:
            not_before = moment(self.after)
        return {
            "id": self.id,
            "model": self.wanted.model,
            "revision": self.wanted.revision or None,
            "dtype": self.wanted.dtype or None,
            "state": str(self.state),
            "reason": self.reason,
            "submitted": moment(self.submitted),
            "changed": moment(self.changed),
            "worker": self.worker,
            "done": self.done,
            "total": self.total,
            "attempts": self.attempts,
            "not_before": not_before,
            "runs": list(runs),
        }


def moment(seconds: float) -> str:
    """Write a time as ``2026-11-22T14:10:57Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wanted(model: object, revision: object = None, dtype: object = None) -> Wanted:
    """Return the model of three fields, with ``ORG/NAME@REVISION`` split; UsageError with
    everything that is wrong.
    """
    values = {"model": model, "revision": revision, "dtype": dtype}
    present = {name: value for name, value in values.items() if value is not None}
    try:
        fields = _Fields.model_validate(present)
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors()]
        raise UsageError.of_problems(problems) from None
    if fields.revision or not _has_revision(fields.model):
        return Wanted(fields.model, fields.revision, fields.dtype)
    name, _, revision_of_name = fields.model.partition("@")
    return Wanted(name, revision_of_name, fields.dtype)


_Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = get_args(_Dtype)

_LONGEST = 200
"""Characters of a model's name."""

_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,99}", re.ASCII)


def _has_revision(name: str) -> bool:
    return "/" in name and not name.startswith(("/", ".")) and not model_kind(name).revisions


def _check_model(text: str) -> str:
    name = text
    revision = ""
    if _has_revision(text):
        name, _, revision = text.partition("@")
    if not name:
        raise ValueError("the model is missing; write its name, as ORG/NAME")
    if len(name) > _LONGEST:
        raise ValueError(f"the model's name has {len(name)} characters; it may have {_LONGEST}")
    # A worker would look for such a model on its own disk.
    is_path_up = ".." in re.split(r"[/\\]", name)
    if is_path_up or not name.isprintable() or any(ord(char) > 0xFFFF for char in name):
        raise ValueError("the model has characters that no model has; write it as ORG/NAME")
    # Everybody who reads the board sees the names.
    if holds_secret(text):
        raise ValueError(
            "the model's name holds a login or a key, which the board would show; leave that out"
        )
    _check_revision(revision)
    return text


def _check_revision(text: str) -> str:
    if text and (not _REVISION.fullmatch(text) or ".." in text):
        raise ValueError(
            "the revision must be a branch, a tag or a commit: letters, digits and . _ - + /"
        )
    return text


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, str_strip_whitespace=True, validate_default=True)

    model: Annotated[str, AfterValidator(_check_model)] = ""
    revision: Annotated[str, AfterValidator(_check_revision)] = ""
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
    """Say how far a submission is."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def words(self) -> str:
        """Return the state as people read it."""
        if self is State.LEASED:
            return "running"
        return self.value

    @property
    def final(self) -> bool:
        """Check that it has ended."""
        return self not in (State.WAITING, State.LEASED)


ALLOW = (f"{PREFIX}*", "*/*")
"""The bundled models, and every repository on the Hub; no folder of a worker's machine."""

LARGEST = 20_000_000_000
"""Bytes of the weights."""


@dataclass(frozen=True)
class Policy:
    """Say which models a board takes: by patterns of names (:func:`matches`), and by the most bytes
    of the weights.

    On every board weights must be safetensors, and no code of a model runs.
    """

    allow: tuple[str, ...] = ALLOW
    largest: int = LARGEST

    def takes(self, model: str) -> bool:
        """Check that models of that name are taken."""
        return any(matches(model, pattern) for pattern in self.allow)


def matches(name: str, pattern: str) -> bool:
    """Check that ``pattern`` matches ``name``.

    ``*`` stands for any characters but ``/`` and ``:``, ``**`` for any at all, and ``?`` for one.
    At the beginning of a part of the name these signs stand for no dot.
    """
    return _expression(pattern).fullmatch(name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    expression = ""
    before = ""
    for piece in re.split(r"(\*\*|\*|\?)", pattern):
        if piece not in _SIGNS:
            expression += re.escape(piece)
        elif not before or before.endswith(("/", ":")):
            expression += r"(?!\.)" + _SIGNS[piece]
        else:
            expression += _SIGNS[piece]
        before += piece
    return re.compile(expression, re.DOTALL)


_SIGNS = {"**": r".*", "*": r"[^/:]+", "?": r"[^/:]"}
"""Signs of a pattern as regular expressions."""


def refusal(wanted: Wanted) -> str:
    """Return why the model can't be evaluated if its name alone tells it, else an empty text."""
    if not wanted.model.startswith(PREFIX):
        return ""
    if bundled_folder(wanted.model, MODELS) is None:
        bundled = ", ".join(PREFIX + model.name for model in MODELS)
        return f"there is no model {wanted.model}; the bundled ones are {bundled}"
    if wanted.revision:
        return f"{wanted.model} has no revisions; leave that out"
    return ""


class Busy(StoreError):
    """The queue can't be written for the moment: another process holds it, or its disk is full.
    Nothing was lost.
    """


class LeaseLost(ChoicewiseError):
    """Whoever asks does not hold the submission (any more)."""


class NoToken(ChoicewiseError):
    """Whoever submits has not shown the token."""


class NoSubmission(ChoicewiseError):
    """No submission has that id."""


class NotAllowed(ChoicewiseError):
    """The board takes no models from that source."""
