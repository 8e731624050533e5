"""What may be submitted; checks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import MODEL, Download, HubName, Snapshot, hub_name, open_snapshot
from choicewise.errors import ChoicewiseError, DataError, ModelError, ProtocolError, StoreError, UsageError
from choicewise.models.load import FAKES, INDEX, open_hub_model
from choicewise.models.local.files import read_config, readable, weight_files
from choicewise.models.model import Model
from choicewise.running.sources import SweepModel
from choicewise.util.secrets import holds_secret

SMALL: Final = 64_000_000
"""Bytes of a configuration, an index of weights or a tokenizer's file, beyond which it is none."""

_CONFIG: Final = "config.json"


def check_model(wanted: Wanted, policy: Policy) -> str:
    """The name by which exactly the model that was checked is loaded: of one on the Hub with its commit.

    Raises Refused where it can't or may not be evaluated: it is not there, ``policy`` does not take it, it is too
    large, needs code of its own, or its weights are not safetensors.  Of a model on the Hub the listing, the
    configuration and the index of weights are read.  Raises another ModelError where that can't be said now, because
    the Hub can't be asked.
    """
    name = wanted.model
    if not policy.takes(name):
        raise Refused(f"{name} is not allowed: the board takes {' and '.join(policy.allow)}; ask who runs it")
    if name in FAKES:
        return name
    try:
        if name.startswith(PREFIX) or Path(name).is_absolute():  # ORG/NAME is never a folder that is here by chance
            _check_folder(name, wanted.revision, policy)
            return name
        if (on_hub := hub_name(wanted.name)) is None:
            raise Refused(f"{wanted.name} is no model that a worker evaluates; submit one of the Hub, as ORG/NAME")
        return _check_on_hub(on_hub, policy)
    except ModelError as error:
        if is_of_model(error):
            raise Refused(error.message, error.problems) from error
        raise


def _check_folder(name: str, revision: str, policy: Policy) -> None:
    folder = Path(name)
    if name.startswith(PREFIX):
        if (bundled := bundled_folder(name, MODELS)) is None:
            raise Refused(
                f"there is no model {name}; the bundled ones are {', '.join(PREFIX + f.name for f in MODELS)}"
            )
        folder = bundled
    if revision:
        raise Refused(f"{name} is no model of the Hub and has no revisions; leave that out")
    with readable(folder):
        _check_code(read_config(folder), name)
        _check_size(sum(file.stat().st_size for file in weight_files(folder)), name, policy)


def _check_on_hub(name: HubName, policy: Policy) -> str:
    snapshot = open_snapshot(name, MODEL)
    for path in (_CONFIG, INDEX):
        _check_small(snapshot, path)
    if _CONFIG not in snapshot.files:
        raise Refused(f"{snapshot.source} holds no {_CONFIG}, so it is no model that transformers reads")
    pinned = HubName(name.repository, name.config, snapshot.commit)
    known, paths = open_hub_model(pinned)  # refuses what has no safetensors
    weights = [path for path in paths if path.endswith(".safetensors")]
    _check_size(sum(known.files[path] for path in weights), known.source, policy)
    for path in paths:
        if path not in weights:
            _check_small(known, path)
    [file] = known.download([_CONFIG])
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise Refused(f"{_CONFIG} of {known.source} is no JSON object")
    _check_code(config, known.source)
    return str(pinned)


def _check_small(snapshot: Snapshot, path: str) -> None:
    if (size := snapshot.files.get(path, 0)) > SMALL:
        raise Refused(f"{path} of {snapshot.source} has {size:,} bytes, and may have {SMALL:,}")


def _check_size(size: int, name: str, policy: Policy) -> None:
    if size > policy.largest:
        raise Refused(
            f"{name} is too large: its weights have {size:,} bytes, and the board takes {policy.largest:,}; submit a"
            " smaller one, or ask who runs the board"
        )


def _check_code(config: Mapping[str, Any], name: str) -> None:
    """Refused for a model that can only be loaded by code that comes with it, which is never run."""
    if "auto_map" not in config:
        return
    if find_spec("transformers") is None:
        raise ModelError(f"whether {name} needs code of its own only transformers says: pip install 'choicewise[hf]'")
    import transformers

    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Refused(
            f"{name} needs code of its own to run (auto_map in {_CONFIG}), which workers never do; submit it when"
            " transformers knows its model type"
        )


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

    def as_json(self) -> dict[str, Any]:
        """For workers, which check what they download."""
        return {"allow": [*self.allow], "largest": self.largest}


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
    if wanted.model.startswith(PREFIX) and bundled_folder(wanted.model, MODELS) is None:
        return f"there is no model {wanted.model}; {_known(MODELS)}"
    if wanted.model.startswith(PREFIX) and wanted.revision:
        return f"{wanted.model} has no revisions; leave that out"
    return ""


def _known(folders: Sequence[Any]) -> str:
    return f"the bundled ones are {', '.join(PREFIX + folder.name for folder in folders)}"


_OF_MODEL: Final = {
    *("RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError", "DisabledRepoError"),
    *("HFValidationError", "RemoteEntryNotFoundError"),
}
"""What ``huggingface_hub`` raises where the model is the reason, and neither network nor disk."""

_OF_MACHINE: Final = {
    *("OutOfReach", "HfHubHTTPError", "HTTPError", "OfflineModeIsEnabled", "CachedRepoTreeNotFoundError"),
    *("FileMetadataError", "OSError", "MemoryError", "OutOfMemoryError", "ReplicasLost"),
}
"""What is raised where network, disk or memory are the reason; those of other packages are known by their names."""


def is_of_model(error: BaseException) -> bool:
    """Whether another worker would meet the same."""
    if isinstance(error, Refused) or is_panic(error):
        return True
    if not isinstance(error, ModelError):
        return False
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    return bool(names & _OF_MODEL) or not names & _OF_MACHINE


def is_panic(error: BaseException) -> bool:
    """Whether a package written in Rust gave up, over a tokenizer for instance: no Exception, though it is one."""
    return type(error).__name__ == "PanicException"


def ends_worker(error: BaseException) -> bool:
    """Whether this worker would meet the same with every other model: its disk, its data, its version."""
    return isinstance(error, StoreError | DataError | ProtocolError | UsageError)


def words(error: BaseException) -> str:
    """Why, in a line."""
    message, problems = getattr(error, "message", ""), getattr(error, "problems", ())
    return "; ".join((message, *problems)) if message else f"{type(error).__name__}: {error}".removesuffix(": ")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


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


@dataclass(frozen=True)
class CheckedModel(SweepModel):
    """``name`` and ``options`` are what was submitted, the same on every worker; ``opened`` is that model here.

    On what device it runs here, and at which commit its revision is, does not change what its runs are called.
    """

    opened: Model = field(kw_only=True, repr=False, compare=False)

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its digest."""
        return self.label, self.opened.digest

    def load(self, progress: Download | None = None, say: Callable[[str], None] = lambda line: None) -> Model:
        """The model, which is there already."""
        return self.opened


class Busy(StoreError):
    """The queue can't be written for the moment: another process holds it, or its disk is full.  Nothing was lost."""


class LeaseLost(ChoicewiseError):
    """Whoever asks does not hold the submission (any more)."""


class NoSubmission(ChoicewiseError):
    """No submission has that id."""


class NotAllowed(ChoicewiseError):
    """The board takes no models from that source."""


class Refused(ChoicewiseError):
    """The model can't be evaluated, as can be told at once."""
