"""One submission on one worker: checked, continued, evaluated, sent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from choicewise.data.download_bars import Download
from choicewise.errors import StoreError
from choicewise.models.load import load_model
from choicewise.records.format import SWEEP
from choicewise.running.executors.parallel import ONE_PROCESS, Parallel
from choicewise.running.memory import give_model_back
from choicewise.running.open_sources import Chosen
from choicewise.running.pulse import Progress
from choicewise.running.source import Source
from choicewise.running.sweep import Audience, sweep
from choicewise.running.sweep_model import SweepModel
from choicewise.running.sweep_plan import plan_of
from choicewise.store.lock import is_locked
from choicewise.store.sweep import read_sweep
from choicewise.submissions.board_faults import NotTaken
from choicewise.submissions.checked_model import CheckedModel
from choicewise.submissions.checks import check_model
from choicewise.submissions.client import BoardClient
from choicewise.submissions.earlier_work import take_earlier
from choicewise.submissions.lease_keeper import LeaseKeeper
from choicewise.submissions.leased_work import LeasedWork
from choicewise.submissions.sending import EVERY, Sending
from choicewise.submissions.trouble import Lacking, WrongPart

ASKED: Final = ("protocols", "data", "subjects", "limit", "on_bad_item")
"""The keys of a sweep's plan by which a board says what it asks."""


@contextmanager
def _unseen(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


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
