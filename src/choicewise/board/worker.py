"""Worker loop: evaluate, upload, renew."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from choicewise.board.client import BoardClient, BoardFailed, BoardFull, LeasedWork, NotTaken, OutOfReach
from choicewise.board.protocol import checked_listing
from choicewise.board.submission import (
    CheckedModel,
    Lacking,
    LeaseLost,
    TooMuch,
    WrongPart,
    check_model,
    ends_worker,
    is_of_model,
    is_panic,
    words,
)
from choicewise.data.hub import Download
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.models.load import load_model
from choicewise.records import BLOCK_FOLDER, MANIFEST, SUMMARY, SWEEP
from choicewise.running.progress import Progress
from choicewise.running.sources import Chosen, Source, SweepModel
from choicewise.running.sweep import Audience, plan_of, sweep
from choicewise.running.workers import ONE_PROCESS, Parallel
from choicewise.store.manifest import read_manifest, read_sweep
from choicewise.util.background import give_model_back
from choicewise.util.files import copy_of, disk_errors, is_locked, new_file, new_folder

SHORTEST, LONGEST = 1.0, 30.0
"""Seconds between two questions whether a submission waits."""

MOST: Final = 3
"""Submissions that fail here one after the other, after which it is rather this machine than all those models."""

_BRIEF: Final = 5.0
"""Seconds of patience with the board where the user waits for the end."""


class End(StrEnum):
    """How it ended with one submission."""

    DONE = "done"
    FAILED = "failed"
    """The model can't be evaluated."""
    BACK = "given back"
    """Another worker may do better, or this one later."""
    LOST = "lost"
    """It is another worker's by now."""


@dataclass(frozen=True)
class Outcome:
    """What became of the submission of the model that is ``called`` so, and why.

    ``here``: whether this machine may be the reason that it was given back.
    """

    called: str
    end: End
    reason: str = ""
    here: bool = True


class Worker:
    """Takes submissions from the board of ``client`` and evaluates them as ``place`` says.

    ``pauses``: the shortest and the longest seconds between two questions whether something waits.  ``outcomes``: what
    became of every submission so far.
    """

    def __init__(
        self, client: BoardClient, place: Workplace, *, pauses: tuple[float, float] = (SHORTEST, LONGEST)
    ) -> None:
        self.client, self.place, self.outcomes = client, place, list[Outcome]()
        self._shortest, self._longest = pauses
        self.name = f"{socket.gethostname()}-{os.getpid()}"

    def work(self, once: bool = False) -> None:
        """Take submissions until nothing waits (``once``), or for ever, and wait between them.

        Raises BoardFailed where the board can't be asked, and whatever this machine fails by with every model: that
        submission is given back before.  KeyboardInterrupt and whatever else ends it gives it back as well.
        """
        pause, troubles = self._shortest, set[str]()
        answered = False
        while True:
            work = self._next(once, answered)
            answered = True
            if work is None:
                if once:
                    return
                pause = self._wait(pause)
                continue
            outcome = self._do(work)
            self.outcomes.append(outcome)
            self.place.say(_told(outcome))
            if outcome.end is not End.BACK:
                troubles = set()
            elif outcome.here:
                troubles |= {work.id}
            if len(troubles) >= MOST:
                raise ChoicewiseError(
                    f"{len(troubles)} submissions in a row could not be evaluated here, the last one because: "
                    f"{outcome.reason}; look at this machine's memory and network, then start the worker again"
                )
            pause = self._wait(pause) if outcome.end is End.BACK and not once else self._shortest

    def _next(self, once: bool, answered: bool) -> LeasedWork | None:
        """The next submission; a board that has ``answered`` before and is out of reach is waited for."""
        try:
            return self.client.lease(self.name, self.client.patience if answered else _BRIEF)
        except OutOfReach as error:  # a wrong address is told at once
            if once or not answered:
                raise
            self.place.say(f"{error.message}; it is asked again")
            return None

    def _wait(self, pause: float) -> float:
        """Wait so long; the next pause."""
        Event().wait(pause)
        return min(2 * pause, self._longest)

    def _do(self, work: LeasedWork) -> Outcome:
        """What becomes of a submission; raises what ends the worker, after it was given back."""
        called = work.wanted.name
        self.place.say(f"takes {called} (submission {work.id})")
        with LeaseKeeper(self.client, work, self.place.say) as keeper:
            job: Job | None = None
            try:
                job = Job(self.client, work, self.place, keeper)
                job.do()
            except (Interrupted, LeaseLost):
                if job is not None:
                    job.remove()
                return Outcome(called, End.LOST, "another worker has it by now")
            except (BoardFull, NotTaken) as error:
                self._give_back(work, words(error), again=True)
                return Outcome(called, End.BACK, words(error))
            except BoardFailed as error:
                raise _kept(error, job) from error
            except Exception as error:
                outcome = self._failed(work, job, error)
                if ends_worker(error):
                    raise
                return outcome
            except BaseException as error:
                if is_panic(error):
                    return self._failed(work, job, error)
                self._save(job, False)
                self._give_back(work, "its worker was ended", again=True, counts=False)
                self.outcomes.append(Outcome(called, End.BACK, "this worker was ended"))
                raise
        job.remove()
        return Outcome(called, End.DONE)

    def _failed(self, work: LeasedWork, job: Job | None, error: BaseException) -> Outcome:
        """What becomes of a submission over which that was raised, once the board knows."""
        reason, of_model = words(error), is_of_model(error)
        ended = of_model and (job is None or not job.opened)
        self._save(job, ended)
        given = self._give_back(work, reason, again=not ended)
        end = End.FAILED if ended else End.BACK
        return Outcome(work.wanted.name, end if given else End.LOST, reason, here=not of_model)

    def _save(self, job: Job | None, of_model: bool) -> None:
        """Send what was computed, where it is of use to the next worker."""
        if job is not None and of_model:
            job.remove()
        elif job is not None:
            with suppress(ChoicewiseError):
                job.send(_BRIEF)
                job.remove()  # which may be what fills the disk

    def _give_back(self, work: LeasedWork, reason: str, again: bool, counts: bool = True) -> bool:
        """Whether it was still this worker's."""
        try:
            self.client.fail(work, reason, again, _BRIEF, counts)
        except LeaseLost:
            return False
        except BoardFailed as error:  # the lease runs out
            self.place.say(f"the board does not hear that {work.wanted.name} is given back: {error.message}")
        return True


def _kept(error: BoardFailed, job: Job | None) -> BoardFailed:
    """The same, saying where what was computed lies."""
    if job is None or not job.folder.is_dir():
        return error
    return type(error)(f"{error.message}; what was computed stays in {job.folder}, and the same line goes on with it")


def _told(outcome: Outcome) -> str:
    return f"{outcome.called}: {outcome.end}" + (f": {outcome.reason}" if outcome.reason else "")


ASKED: Final = ("protocols", "data", "subjects", "limit", "on_bad_item")
"""The keys of a sweep's plan by which a board says what it asks."""


@contextmanager
def _unseen(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


EVERY: Final = 5.0
"""Seconds between two looks at what was written."""


@dataclass(frozen=True)
class Workplace:
    """How one machine evaluates submissions.

    ``out``: the folder of what is under way.  ``here``: further arguments of :func:`choicewise.load_model`, such as the
    device.  ``parallel``: how the work is spread, as of a sweep, like ``command``.  ``say`` gets a line now and then;
    ``shown`` takes a title and gives what hears of (done, total); ``download`` hears of downloads.  ``every``: seconds
    between two looks at what can be sent.
    """

    out: Path
    here: Mapping[str, Any] = field(default_factory=dict)
    parallel: Parallel = ONE_PROCESS
    say: Callable[[str], None] = lambda line: None
    shown: Callable[[str], AbstractContextManager[Progress]] = _unseen
    download: Download | None = None
    command: Callable[[SweepModel, Source, Chosen], Sequence[str]] = lambda model, source, chosen: ()
    every: float = EVERY


class Job:
    """A submission under a lease that ``keeper`` keeps.

    ``opened``: whether the model was, so that what fails from then on may be this machine's fault.
    """

    def __init__(self, client: BoardClient, work: LeasedWork, place: Workplace, keeper: LeaseKeeper) -> None:
        self._client, self._work, self._place, self._keeper = client, work, place, keeper
        self.folder, self.opened = _free_folder(place.out, work.id), False

    def do(self) -> None:
        """Evaluate it and send all of it; the board has it then.

        Raises Refused and other ModelErrors where the model can't be evaluated, StoreError where this disk is the
        reason, DataError where the questions can't be had, BoardFailed and LeaseLost as the client, and Interrupted
        where the lease is lost meanwhile.
        """
        work = self._work
        pinned = check_model(work.wanted, work.policy)
        self._take_earlier()
        options = {"dtype": work.wanted.dtype or work.ask.get("dtype")}
        options = {name: value for name, value in options.items() if value}
        here = {**self._place.here, **self._place.parallel.loading(self._place.here.get("device"))}
        opened = load_model(pinned, progress=self._download, say=self._say, **{**here, **options})
        self.opened = True
        if work.wanted.revision:  # else the board would call all revisions of a model the same
            opened.name = work.wanted.name
        model = CheckedModel(work.wanted.name, options, opened=opened)
        self._evaluate(model)
        del opened, model
        give_model_back()
        self._finish()

    def send(self, patience: float | None = None) -> None:
        """Send what there is, so that it is not computed again elsewhere."""
        Sending(self._client, self._work, self.folder).send(patience)

    def remove(self) -> None:
        """Take what was under way off this disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take_earlier(self) -> None:
        if not self._work.files:
            return
        try:
            came = take_earlier(self._client, self._work, self.folder, self._keeper.check)
        except (NotTaken, WrongPart) as error:
            self._say(f"what earlier workers sent can't be used ({error.message}); it is computed again")
            self.remove()
            return
        if came:
            self._say(f"goes on with what earlier workers sent: {came} {'run' if came == 1 else 'runs'}")

    def _evaluate(self, model: CheckedModel) -> None:
        """The sweep; runs that were begun with something else under the same name are begun anew, once."""
        try:
            self._sweep(model)
        except StoreError as error:
            if isinstance(error.__cause__, OSError):  # the disk
                raise
            stale = self._unfinished()
            if not stale:
                raise
            self._say(f"what was computed before does not go on ({error.message}); it is computed again")
            for run in stale:
                shutil.rmtree(run, ignore_errors=True)
            self._sweep(model)

    def _sweep(self, model: CheckedModel) -> None:
        work, place = self._work, self._place
        table = {key: work.ask[key] for key in ASKED if work.ask.get(key)}
        asked = replace(
            plan_of({**table, "models": [work.wanted.name]}),
            models=[model],
            go_on=False,
            command=place.command,
            parallel=place.parallel,
        )
        with (
            place.shown(work.wanted.name) as shown,
            Sending(self._client, work, self.folder, self._keeper.lose, place.every),
        ):

            def progress(done: int, total: int) -> None:
                shown(done, total)
                self._keeper.progress(done, total)

            sweep(asked, self.folder, Audience(progress, self._say, download=self._download))
        self._keeper.check()

    def _finish(self) -> None:
        self.send()
        try:
            self._client.finish(self._work)
        except Lacking:
            Sending(self._client, replace(self._work, files={}), self.folder).send()
            self._client.finish(self._work)

    def _unfinished(self) -> list[Path]:
        """The runs that the sweep has not done, as far as they were begun."""
        cells = read_sweep(self.folder).missing if (self.folder / SWEEP).exists() else ()
        return [run for cell in cells if (run := self.folder / cell.folder).is_dir()]

    def _say(self, line: str) -> None:
        self._place.say(line)

    def _download(self, name: str, done: int, total: int) -> None:
        self._keeper.check()
        if self._place.download is not None:
            self._place.download(name, done, total)


def _free_folder(out: Path, name: str) -> Path:
    """The folder of a submission below ``out``, or the next one that no other worker is writing to."""
    number, folder = 1, out / name
    while folder.is_dir() and is_locked(folder):
        number += 1
        folder = out / f"{name}-{number}"
    return folder


_TRIES: Final = 3
"""How often parts that the board lost are sent again."""


class Sending:
    """Sends the sweep in ``folder`` to the board, each content once.

    What goes wrong in the thread is tried again, and what does not heal is said at the end; ``lost`` is called there
    when the lease is.
    """

    def __init__(
        self,
        client: BoardClient,
        work: LeasedWork,
        folder: Path,
        lost: Callable[[], None] = lambda: None,
        every: float = EVERY,
    ) -> None:
        self._client, self._work, self._folder, self._lost, self._every = client, work, folder, lost, every
        self._there, self._listed = set(work.files.values()), dict(work.files)
        self._ended = Event()
        self._thread = Thread(target=self._now_and_then, name="choicewise-sending", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def send(self, patience: float | None = None) -> bool:
        """Send what the board lacks; whether there was anything.

        ``patience``: as of :class:`~choicewise.board.client.BoardClient`.  Raises BoardFailed, LeaseLost, and
        StoreError where the folder can't be read.
        """
        files = sent_files(self._folder)
        listing = {file.path: file.sha256 for file in files}
        if not listing or listing == self._listed:
            return False
        for _ in range(_TRIES):
            for file in files:
                if file.sha256 not in self._there:
                    self._there.add(self._client.put(self._work, file.read(self._folder), patience))
            try:
                self._client.list_files(self._work, listing, patience)
            except Lacking as lacking:
                self._there -= {*lacking.sums}
                continue
            self._listed = listing
            return True
        raise BoardFailed(f"{self._client.address} keeps losing what it was sent; look at its disk")

    def _now_and_then(self) -> None:
        pause = self._every
        while not self._ended.wait(pause):
            try:
                self.send(patience=0.0)
                pause = self._every
            except LeaseLost:
                self._lost()
                return
            except Changed:  # it is being written
                pause = self._every
            except (BoardFailed, StoreError):  # at the end it is tried again, patiently, and said
                pause = min(2 * pause, 60.0)


_PART: Final = 4
"""A lease is renewed so many times as often as it must be."""


class Interrupted(BaseException):
    """The lease is lost: whoever computes stops here.  No error, so that nobody takes it for one of the model."""


class LeaseKeeper:
    """Renews the lease of ``work`` while the ``with`` lasts; ``lost`` once the board says that it is another's.

    A board that does not answer is asked again and again: whether the lease still holds is for the board to say, by its
    own clock.  ``say`` hears once of such a silence, and of its end.
    """

    def __init__(self, client: BoardClient, work: LeasedWork, say: Callable[[str], None] = lambda line: None) -> None:
        self._client, self._work, self._say = client, work, say
        self._pause, self._progress, self._silent = work.seconds / _PART, (0, 0), False
        self._lost, self._ended = Event(), Event()
        self._thread = Thread(target=self._keep, name="choicewise-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        """Whether the submission is another worker's by now."""
        return self._lost.is_set()

    def lose(self) -> None:
        """The board said so elsewhere."""
        self._lost.set()

    def progress(self, done: int, total: int) -> None:
        """How far the work is, for the board's page; a safe point: raises Interrupted where the lease is lost."""
        self._progress = done, total
        self.check()

    def check(self) -> None:
        """A safe point alone."""
        if self.lost:
            raise Interrupted

    def _keep(self) -> None:
        while not self._ended.wait(self._pause) and not self.lost:
            try:
                self._pause = self._client.renew(self._work, *self._progress) / _PART
            except LeaseLost:
                self._lost.set()
            except BoardFailed as error:
                if not self._silent:
                    self._say(f"the lease can't be renewed for now: {error.message}; the work goes on meanwhile")
                self._silent = True
            else:
                if self._silent:
                    self._say("the board answers again")
                self._silent = False


class Changed(StoreError):
    """A file is not (any more) what the manifest that lists it says: it was written anew, or is damaged."""


@dataclass(frozen=True)
class SentFile:
    """The file at ``path``, relative to the sweep's folder with ``/``, of this ``sha256`` (hex).

    ``text``: what it holds, where it is one that is replaced by newer ones under the same name; else None.
    """

    path: str
    sha256: str
    text: bytes | None = None

    def read(self, folder: Path) -> bytes:
        """What it holds; Changed where that is another content."""
        if self.text is not None:
            return self.text
        try:
            content = (folder / self.path).read_bytes()
        except OSError as error:
            raise Changed(f"{folder / self.path} can't be read: {error.strerror}; evaluate again") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise Changed(f"{folder / self.path} is not the file the manifest describes; evaluate again")
        return content


def sent_files(folder: Path) -> list[SentFile]:
    """All that counts in the sweep ``folder``, in the order to send it: what manifests list, manifests, the sweep's.

    What is written meanwhile is either in it as a whole or not at all: every manifest is read once, before the files
    that it lists, and lists only what was there before.  Empty where no sweep was begun.  Raises StoreError for a
    record that can't be read.
    """
    record = _text(folder / SWEEP)
    if record is None:
        return []
    listed, manifests = dict[str, SentFile](), dict[str, SentFile]()
    for run in _runs(record, folder / SWEEP):
        if (manifest := _text(folder / run / MANIFEST)) is None:
            continue
        listed |= {file.path: file for file in _listed(run, _parsed(manifest, folder / run / MANIFEST))}
        manifests |= _twice(f"{run}/{MANIFEST}", manifest)
    return [*{**listed, **manifests, **_twice(SWEEP, record)}.values()]


def _runs(record: bytes, path: Path) -> list[str]:
    """The folders of the sweep's runs."""
    try:
        return list(dict.fromkeys(str(cell["folder"]) for cell in _parsed(record, path)["cells"]))
    except (KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged; begin another folder") from error


def _listed(run: str, manifest: Mapping[str, Any]) -> Iterator[SentFile]:
    """The files that a manifest lists; but not the summary, which the board computes itself."""
    try:
        for name, file in manifest["files"].items():
            if name != SUMMARY:
                yield SentFile(f"{run}/{name}", file["sha256"])
        for block in manifest["blocks"]:
            for name, file in block["files"].items():
                yield SentFile(f"{run}/{BLOCK_FOLDER}/{block['name']}/{name}", file["sha256"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the manifest of {run} is damaged; evaluate again into a new folder") from error


def _twice(path: str, text: bytes) -> dict[str, SentFile]:
    """The file and its copy, which says the same."""
    sha, copy = hashlib.sha256(text).hexdigest(), copy_of(Path(path)).as_posix()
    return {each: SentFile(each, sha, text) for each in (path, copy)}


def _text(path: Path) -> bytes | None:
    with disk_errors(path):
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); evaluate again into a new folder") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged; evaluate again into a new folder")
    return content


def take_earlier(client: BoardClient, work: LeasedWork, folder: Path, check: Callable[[], None]) -> int:
    """Put the files that the board has of ``work`` into the sweep ``folder``; the number of runs that came.

    A run that is further here is kept.  Each run is put there in one step.  ``check`` is called between files, to
    raise what ends it.  Raises WrongPart for a listing or parts that are no sweep's, NotTaken and LeaseLost as the
    client, and StoreError where the disk does not take it.
    """
    try:
        listing = checked_listing(work.files)
    except TooMuch as error:
        raise WrongPart(error.message) from error
    runs: dict[str, dict[str, str]] = defaultdict(dict)
    for path, sha in listing.items():
        if path.count("/") > 1:
            run, name = "/".join(path.split("/")[:2]), "/".join(path.split("/")[2:])
            runs[run][name] = sha
    if runs and SWEEP not in listing:
        raise WrongPart(f"{SWEEP} is not among them")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    came = 0
    for run, files in runs.items():
        if MANIFEST in files and _further(client.get(work, files[MANIFEST]), folder / run):
            _take(client, work, files, folder / run, check)
            came += 1
    if SWEEP in listing and not (folder / SWEEP).exists():
        _write(folder / SWEEP, client.get(work, listing[SWEEP]))
    return came


def _take(
    client: BoardClient, work: LeasedWork, files: Mapping[str, str], run: Path, check: Callable[[], None]
) -> None:
    """The run, complete or not there at all."""
    with disk_errors(run):
        run.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(run) as made:
        for name, sha in files.items():
            check()
            content = client.get(work, sha)
            with disk_errors(run):
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_bytes(content)


def _further(manifest: bytes, run: Path) -> bool:
    """Whether the run of this ``manifest`` has more than what is in the folder ``run``."""
    try:
        content = json.loads(manifest)
        there = bool(content["complete"]), len(content["blocks"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise WrongPart(f"the manifest of {run.name} that was sent is none") from error
    try:
        here = read_manifest(run)
    except StoreError:
        return True
    return there > (here.complete, len(here.blocks))


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as partial:
        partial.write_bytes(content)
    with new_file(copy_of(path)) as partial:
        partial.write_bytes(content)
