"""Take submissions from the queue of a board and evaluate them beside the board's folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import Field

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import (
    MODEL,
    Download,
    HubName,
    OutOfReach,
    Snapshot,
    hub_name,
    open_snapshot,
)
from choicewise.errors import (
    ChoicewiseError,
    DataError,
    MachinesLost,
    ModelError,
    ProtocolError,
    StoreError,
    UsageError,
)
from choicewise.extensions.board.queue import SECONDS, Lease, SubmissionService
from choicewise.extensions.board.submission import Busy, LeaseLost, Policy, Wanted, refusal
from choicewise.extensions.run.sweep import Audience, sweep
from choicewise.models.fake import FAKES
from choicewise.models.load import load_model
from choicewise.models.local.files import read_config, readable, weight_files
from choicewise.models.model import Model
from choicewise.models.opening import INDEX, open_hub_model
from choicewise.protocols.catalogue import resolve
from choicewise.records import SWEEP
from choicewise.running.fitting import change_notes, variants_among
from choicewise.running.job import ModelChoice, OpenedSource, job_of
from choicewise.running.progress import Progress
from choicewise.store.folder import read_manifest, read_sweep
from choicewise.util.background import Every, give_model_back
from choicewise.util.files import is_locked
from choicewise.util.jsonio import JsonDict, JsonMapping

SHORTEST = 1.0
LONGEST = 30.0
"""Seconds between two looks whether a submission waits."""

MOST = 3
"""Submissions that fail here one after the other, after which it is rather this machine than all
those models.
"""


class End(StrEnum):
    """Say how a submission ended for a worker."""

    DONE = "done"
    FAILED = "failed"
    """The model can't be evaluated."""
    BACK = "given back"
    """Another worker may do better, or this one later."""
    LOST = "lost"
    """It is another worker's by now."""


@dataclass(frozen=True)
class Outcome:
    """Hold how the submission of the model ``called`` so ended, and why.

    ``here``: whether this machine may be the reason that it was given back.
    """

    called: str
    end: End
    reason: str = ""
    here: bool = True


@dataclass(frozen=True)
class Workplace:
    """Hold how a worker evaluates.

    ``here``: further arguments of :func:`choicewise.load_model`, such as the device. ``say``
    receives a line now and then. ``shown`` takes a title and opens what receives (done, total).
    ``download`` receives the progress of downloads.
    """

    here: JsonMapping = field(default_factory=dict)
    say: Callable[[str], None] = lambda line: None
    shown: Callable[[str], AbstractContextManager[Progress]] = lambda title: nullcontext(
        lambda done, total: None
    )
    download: Download | None = None


class Worker:
    """Take submissions from ``service`` and evaluate them as ``workplace`` says.

    ``pauses``: the shortest and the longest seconds between two looks whether something waits.
    ``outcomes``: how every submission ended so far.
    """

    def __init__(
        self,
        service: SubmissionService,
        workplace: Workplace,
        *,
        pauses: tuple[float, float] = (SHORTEST, LONGEST),
    ) -> None:
        self.service = service
        self.workplace = workplace
        self.outcomes: list[Outcome] = []
        self._shortest, self._longest = pauses
        self.name = f"{socket.gethostname()}-{os.getpid()}"

    def work(self, once: bool = False) -> None:
        """Take submissions until nothing waits (``once``), or for ever, and wait between them.

        Raises whatever this machine fails by with every model: that submission is given back
        before. KeyboardInterrupt and whatever else ends it gives it back as well.
        """
        pause = self._shortest
        troubles: set[str] = set()
        while True:
            lease = self._next()
            if lease is None:
                if once:
                    return
                pause = self._wait(pause)
                continue
            outcome = self._do(lease)
            self.outcomes.append(outcome)
            line = f"{outcome.called}: {outcome.end}"
            if outcome.reason:
                line += f": {outcome.reason}"
            self.workplace.say(line)
            if outcome.end is not End.BACK:
                troubles.clear()
            elif outcome.here:
                troubles.add(lease.submission.id)
            # One model that fails here may be to blame itself; three in a row are not.
            if len(troubles) >= MOST:
                raise ChoicewiseError(
                    f"{len(troubles)} submissions in a row could not be evaluated here, the last "
                    f"one because: {outcome.reason}; look at this machine's memory and network, "
                    "then start the worker again"
                )
            if outcome.end is End.BACK and not once:
                pause = self._wait(pause)
            else:
                pause = self._shortest

    def _next(self) -> Lease | None:
        while True:
            try:
                return self.service.queue.lease(self.name)
            except Busy as error:
                self.workplace.say(f"{error.message}; trying again")
                Event().wait(self._shortest)

    def _wait(self, pause: float) -> float:
        """Wait so many seconds, and return the next pause."""
        Event().wait(pause)
        return min(2 * pause, self._longest)

    def _do(self, lease: Lease) -> Outcome:
        """Evaluate a submission and return how it ended; raises what ends the worker, after it was
        given back.
        """
        called = lease.submission.wanted.name
        folder = self.service.unfinished(lease.submission)
        self.workplace.say(f"takes {called} (submission {lease.submission.id})")
        # A worker that did not renew its lease may go on.
        if folder.is_dir() and is_locked(folder):
            reason = "another worker still writes to its runs"
            self._give_back(lease, reason, again=True, counts=False, pause=True)
            return Outcome(called, End.BACK, reason, here=False)
        job = _Job(self.service, lease, self.workplace)
        try:
            with Every(SECONDS / 4, job.renew):
                job.do(folder)
                self.service.finish(lease, job.remark(folder))
        except (_Interrupted, LeaseLost):
            return Outcome(called, End.LOST, "another worker has it by now")
        except Exception as error:
            outcome = self._failed(lease, job, folder, error)
            # This worker would meet these with every other model: its disk, its data, its version.
            if isinstance(error, StoreError | DataError | ProtocolError | UsageError):
                raise
            return outcome
        except BaseException as error:
            if _is_panic(error):
                return self._failed(lease, job, folder, error)
            self._give_back(lease, "its worker was ended", again=True, counts=False)
            self.outcomes.append(Outcome(called, End.BACK, "this worker was ended"))
            raise
        return Outcome(called, End.DONE)

    def _failed(self, lease: Lease, job: _Job, folder: Path, error: BaseException) -> Outcome:
        """Give a submission back after an error, and return how it ended."""
        reason = _words(error)
        of_model = is_of_model(error)
        end = End.BACK
        if of_model and not job.opened:
            end = End.FAILED
            shutil.rmtree(folder, ignore_errors=True)
        if not self._give_back(lease, reason, again=end is End.BACK):
            end = End.LOST
        return Outcome(lease.submission.wanted.name, end, reason, here=not of_model)

    def _give_back(self, lease: Lease, reason: str, again: bool, **how: bool) -> bool:
        """Give a submission back, and return whether it was still this worker's."""
        try:
            self.service.queue.fail(lease.submission.id, lease.secret, reason, again, **how)
        except LeaseLost:
            return False
        except Busy as error:  # the lease runs out
            self.workplace.say(f"{lease.submission.wanted.name} is not given back: {error.message}")
        return True


class _Interrupted(BaseException):
    """The lease is lost, and computing stops. No Exception, so that nobody takes it for an error of
    the model.
    """


class _Job:
    """Evaluate a submission under a ``lease``, which a thread renews.

    ``opened``: whether the model was opened; what fails from then on may be this machine's fault.
    """

    def __init__(self, service: SubmissionService, lease: Lease, workplace: Workplace) -> None:
        self._service = service
        self._lease = lease
        self._workplace = workplace
        self._progress = (0, 0)
        self._lost = Event()
        self.opened = False

    def renew(self) -> None:
        """Say that the work goes on, and how far it is."""
        with suppress(Busy):  # the next call is soon enough
            try:
                self._service.queue.renew(
                    self._lease.submission.id, self._lease.secret, *self._progress
                )
            except LeaseLost:
                self._lost.set()

    def do(self, folder: Path) -> None:
        """Evaluate it into ``folder``, where an earlier worker may have begun.

        Raises Refused and other ModelErrors if the model can't be evaluated, StoreError if this
        disk is the reason, DataError if the questions can't be had, and Interrupted if the lease is
        lost meanwhile.
        """
        wanted = self._lease.submission.wanted
        workplace = self._workplace
        pinned = check_model(wanted, self._service.asked.policy)
        options: JsonDict = {}
        if wanted.dtype:
            options["dtype"] = wanted.dtype
        loading = {**workplace.here, **options}
        opened = load_model(pinned, progress=self._download, say=workplace.say, **loading)
        self.opened = True
        if wanted.revision:  # else the board would give all revisions of a model one name
            opened.name = wanted.name
        model = _CheckedModel(name=wanted.name, opened=opened, **options)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._sweep(model, folder)
        except StoreError as error:
            unfinished = _unfinished(folder)
            if isinstance(error.__cause__, OSError) or not unfinished:  # the disk
                raise
            workplace.say(
                f"what was computed before does not go on ({error.message}); it is computed again"
            )
            # A run that another version began can't be resumed, and is cheaper to repeat than to
            # lose.
            for run in unfinished:
                shutil.rmtree(run, ignore_errors=True)
            self._sweep(model, folder)
        del opened, model
        give_model_back()

    def remark(self, folder: Path) -> str:
        """Return how the runs in ``folder`` differ from what the board says, or an empty text."""
        names = self._service.asked.protocols
        protocols = resolve(*names)
        lines: dict[str, None] = {}
        for cell in read_sweep(folder).cells:
            manifest = read_manifest(folder / cell.folder)
            renamed = variants_among(manifest.protocols, protocols)
            notes = change_notes(manifest.dataset.name, names, protocols, renamed)
            lines |= dict.fromkeys(notes)
        return "; ".join(lines)

    def _sweep(self, model: _CheckedModel, folder: Path) -> None:
        workplace = self._workplace
        job = job_of(self._service.asked.plan()).model_copy(update={"models": (model,)})

        def opened(source: OpenedSource) -> None:
            for change in source.changes:
                workplace.say(f"note: {change}")

        with workplace.shown(model.name) as show_progress:

            def progress(done: int, total: int) -> None:
                show_progress(done, total)
                self._progress = done, total
                self._check()

            audience = Audience(progress, workplace.say, opened, download=self._download)
            sweep(job, folder, audience, go_on=False)
        self._check()

    def _check(self) -> None:
        """Raise Interrupted if the lease is lost; called where it is safe to stop."""
        if self._lost.is_set():
            raise _Interrupted

    def _download(self, name: str, done: int, total: int) -> None:
        self._check()
        if self._workplace.download is not None:
            self._workplace.download(name, done, total)


class _CheckedModel(ModelChoice):
    """Choose the model ``opened`` under the ``name`` and with the options that were submitted.

    On what device it runs here, and at which commit its revision is, does not change the names of
    its runs.
    """

    opened: Any = Field(repr=False)

    @property
    def state(self) -> object:
        """Return what changes when the model of that name becomes another: its digest."""
        return self.label, self.opened.digest

    def load(
        self,
        progress: Download | None = None,
        say: Callable[[str], None] = lambda line: None,
        **options: Any,
    ) -> Model:
        """Return the model, which is open already."""
        return self.opened


def _unfinished(folder: Path) -> list[Path]:
    """Return the runs in ``folder`` that a sweep has begun and not done."""
    if not (folder / SWEEP).exists():
        return []
    runs = [folder / cell.folder for cell in read_sweep(folder).missing]
    return [run for run in runs if run.is_dir()]


class Refused(ChoicewiseError):
    """The model can't be evaluated, which is known before its weights are downloaded."""


SMALL = 64_000_000
"""Bytes of a configuration, an index of weights or a tokenizer's file, beyond which it is none."""

_CONFIG = "config.json"


def check_model(wanted: Wanted, policy: Policy) -> str:
    """Check a model, and return the name by which it is loaded: for one on the Hub with the commit
    that was checked.

    Raises Refused if it can't or may not be evaluated: it is not there, ``policy`` does not take
    it, it is too large, needs code of its own, or its weights are not safetensors. From the Hub the
    listing, the configuration and the index of weights are read. Raises another ModelError if the
    Hub can't be reached.
    """
    name = wanted.model
    if not policy.takes(name):
        raise Refused(
            f"{name} is not allowed: the board takes {' and '.join(policy.allow)}; ask who runs it"
        )
    if name in FAKES:
        return name
    try:
        # ORG/NAME is never a folder that is here by chance.
        if name.startswith(PREFIX) or Path(name).is_absolute():
            _check_folder(name, wanted.revision, policy)
            return name
        on_hub = hub_name(wanted.name)
        if on_hub is None:
            raise Refused(
                f"{wanted.name} is no model that a worker evaluates; submit one of the Hub, as "
                "ORG/NAME"
            )
        return _check_on_hub(on_hub, policy)
    except ModelError as error:
        if is_of_model(error):
            raise Refused(error.message, error.problems) from error
        raise


def _check_folder(name: str, revision: str, policy: Policy) -> None:
    reason = refusal(Wanted(name, revision))
    if reason:
        raise Refused(reason)
    if revision:
        raise Refused(f"{name} is no model of the Hub and has no revisions; leave that out")
    folder = bundled_folder(name, MODELS) or Path(name)
    with readable(folder):
        _check_code(read_config(folder), name)
        _check_size(sum(file.stat().st_size for file in weight_files(folder)), name, policy)


def _check_on_hub(name: HubName, policy: Policy) -> str:
    snapshot = open_snapshot(name, MODEL)
    # These are read before the policy can be checked, so that their sizes are checked first.
    for path in (_CONFIG, INDEX):
        _check_small(snapshot, path)
    if _CONFIG not in snapshot.files:
        raise Refused(
            f"{snapshot.source} holds no {_CONFIG}, so it is no model that transformers reads"
        )
    pinned = HubName(name.repository, name.config, snapshot.commit)
    pinned_snapshot, paths = open_hub_model(pinned)  # refuses what has no safetensors
    weights = [path for path in paths if path.endswith(".safetensors")]
    size = sum(pinned_snapshot.files[path] for path in weights)
    _check_size(size, pinned_snapshot.source, policy)
    for path in paths:
        if path not in weights:
            _check_small(pinned_snapshot, path)
    [file] = pinned_snapshot.download([_CONFIG])
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise Refused(f"{_CONFIG} of {pinned_snapshot.source} is no JSON object")
    _check_code(config, pinned_snapshot.source)
    return str(pinned)


def _check_small(snapshot: Snapshot, path: str) -> None:
    size = snapshot.files.get(path, 0)
    if size > SMALL:
        raise Refused(f"{path} of {snapshot.source} has {size:,} bytes, and may have {SMALL:,}")


def _check_size(size: int, name: str, policy: Policy) -> None:
    if size > policy.largest:
        raise Refused(
            f"{name} is too large: its weights have {size:,} bytes, and the board takes "
            f"{policy.largest:,}; submit a"
            " smaller one, or ask who runs the board"
        )


def _check_code(config: JsonMapping, name: str) -> None:
    """Raise Refused for a model that can only be loaded by code that comes with it, which is never
    run.
    """
    if "auto_map" not in config:
        return
    import transformers

    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Refused(
            f"{name} needs code of its own to run (auto_map in {_CONFIG}), which workers never do; "
            "submit it when"
            " transformers knows its model type"
        )


def is_of_model(error: BaseException) -> bool:
    """Check that another worker would meet the same error: neither network nor disk nor memory are
    the reason.
    """
    from httpx2 import HTTPError
    from huggingface_hub import errors
    from torch import OutOfMemoryError

    if isinstance(error, Refused) or _is_panic(error):
        return True
    if not isinstance(error, ModelError):
        return False
    of_model = (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.DisabledRepoError,
        errors.HFValidationError,
        errors.RemoteEntryNotFoundError,
    )
    of_machine = (
        OutOfReach,
        HTTPError,
        errors.CachedRepoTreeNotFoundError,
        OSError,  # nearly all that the Hub's library raises about network and disk
        MemoryError,
        OutOfMemoryError,
        MachinesLost,
    )
    causes = list(_causes(error))
    # The errors of a model come first: some of them are OSErrors, too.
    if any(isinstance(cause, of_model) for cause in causes):
        return True
    return not any(isinstance(cause, of_machine) for cause in causes)


def _is_panic(error: BaseException) -> bool:
    """Check that a package written in Rust gave up, over a tokenizer for instance, which is no
    Exception.
    """
    return not isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _words(error: BaseException) -> str:
    """Return the reason in a line."""
    if isinstance(error, ChoicewiseError) and error.message:
        return "; ".join((error.message, *error.problems))
    return f"{type(error).__name__}: {error}".removesuffix(": ")
