"""Repositories on the Hub, at one commit, through the ``huggingface_hub`` package: its cache, its token, its switches.

Everything that package raises becomes an error that says what to do (:mod:`choicewise.data.hub_errors`), and what it
would print is kept from users.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from choicewise.data.download_bars import Download, Silent, bars_for, own_bars
from choicewise.data.hub_errors import Kind, OutOfReach, explained, retry_after
from choicewise.data.hub_name import HubName
from choicewise.data.hub_reach import out_of_reach
from choicewise.errors import ChoicewiseError

TRIES: Final = 4
"""How often the Hub is asked what it was too busy to answer."""

_LISTING: Final = ("README.md",)
"""What is read of a repository to know it."""

_LOGS: Final = ("huggingface_hub", "httpx2", "httpcore2")
"""Loggers that name addresses, which may be signed."""

_COMMIT: Final = re.compile("[0-9a-f]{40}")
"""What is a commit already."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit.

    ``files``: path → size in bytes of everything in it, downloaded or not; ``folder``: where downloaded files lie, by
    the same paths.
    """

    name: HubName
    kind: Kind
    commit: str
    files: Mapping[str, int]
    folder: Path

    @property
    def source(self) -> str:
        """What was read, once and for all: the repository, the configuration where one was named, and the commit."""
        return str(HubName(self.name.repository, self.name.config, self.commit))

    def download(self, paths: Collection[str], progress: Download | None = None) -> list[Path]:
        """The files of these ``paths`` on this machine, in order; those in the cache are not fetched again.

        Raises the kind's error when one can't be had.
        """
        lacking = {path: self.files[path] for path in paths if not (self.folder / path).is_file()}
        if lacking:
            bars = bars_for(str(self.name), sum(lacking.values()), progress) if progress else own_bars()
            literal = [_literally(path) for path in lacking]
            with _hub(self.name, self.kind) as hub:
                if silence := _silence(hub):
                    raise OutOfReach(silence)
                _patiently(lambda: _snapshot(hub, self.name, self.kind, self.commit, literal, tqdm_class=bars))
        if missing := [path for path in lacking if not (self.folder / path).is_file()]:
            raise self.kind.error(f"{missing[0]} of {self.source} was not downloaded; run the same again")
        return [self.folder / path for path in paths]


def open_snapshot(name: HubName, kind: Kind) -> Snapshot:
    """The repository ``name`` at the commit that its revision is now; of its files only the description is fetched.

    Without network a revision is the commit that it was when it was last asked for.  Raises the kind's error when there
    is none, it is gated, or nothing of it is known here and the Hub can't be reached.
    """
    with _hub(name, kind) as hub:
        commit = _commit(hub, name, kind)
        folder = Path(_listed(hub, name, kind, commit))
        files = _files(hub, name, kind, commit, folder)
    return Snapshot(name, kind, commit, files, folder)


def commit_of(name: HubName, kind: Kind) -> str | None:
    """The commit that the revision of ``name`` is now, as in :func:`open_snapshot`; None where that can't be said."""
    try:
        with _hub(name, kind) as hub:
            return _commit(hub, name, kind)
    except ChoicewiseError:  # who opens it hears why
        return None


def _commit(hub: Any, name: HubName, kind: Kind) -> str:
    """The commit that the revision is now, or was when the Hub was last in reach."""
    ask = partial(hub.resolve_revision, name.repository, repo_type=kind.name, revision=name.revision)
    silence = "" if _COMMIT.fullmatch(name.revision or "") else _silence(hub)
    revision = _in_cache(partial(ask, local_files_only=True), silence) if silence else _patiently(ask)
    return str(revision.resolved)


def _listed(hub: Any, name: HubName, kind: Kind, commit: str) -> str:
    """The folder of a commit, which holds its description now; the Hub is asked for it and the listing but once."""
    ask = partial(_snapshot, hub, name, kind, commit, [*_LISTING])
    with suppress(hub.errors.CachedRepoTreeNotFoundError, hub.errors.LocalEntryNotFoundError):
        hub.get_cached_repo_tree(name.repository, repo_type=kind.name, revision=commit)
        return ask(local_files_only=True)
    silence = _silence(hub)
    return _in_cache(partial(ask, local_files_only=True), silence) if silence else _patiently(ask)


def _silence(hub: Any) -> str:
    """Why asking is of no use; empty where the Hub answers, or the package is forbidden to ask and will say that."""
    return "" if hub.is_offline_mode() else out_of_reach()


def _in_cache(ask: Callable[[], Result], silence: str) -> Result:
    """What the cache holds, where the Hub gives no answer for the reason ``silence``."""
    try:
        return ask()
    except Exception as error:
        raise OutOfReach(silence) from error


def _files(hub: Any, name: HubName, kind: Kind, commit: str, folder: Path) -> dict[str, int]:
    """What the repository holds; what is in the cache, where that was filled by a program that kept no listing."""
    try:
        tree = hub.get_cached_repo_tree(name.repository, repo_type=kind.name, revision=commit)
    except hub.errors.CachedRepoTreeNotFoundError:
        if not kind.has_index:
            raise
        local = (file for file in folder.rglob("*") if file.is_file())
        return {file.relative_to(folder).as_posix(): file.stat().st_size for file in local}
    return {file.path: file.size for file in tree}


def _snapshot(hub: Any, name: HubName, kind: Kind, commit: str, patterns: list[str], **more: Any) -> str:
    return hub.snapshot_download(
        name.repository,
        repo_type=kind.name,
        revision=commit,
        allow_patterns=patterns,
        **({"tqdm_class": Silent} | more),
    )


@contextmanager
def _hub(name: HubName, kind: Kind) -> Iterator[Any]:
    """The package, as quiet as can be, and its errors in our words."""
    if find_spec("huggingface_hub") is None:
        raise kind.error(
            f"{name} is on the Hub, which needs the package huggingface_hub; run: pip install 'choicewise[hub]'"
        )
    import huggingface_hub.utils.logging  # which sets the level of its log when it is imported, and not before

    levels = {log: log.level for log in map(logging.getLogger, _LOGS)}
    for log in levels:
        log.setLevel(logging.CRITICAL)
    try:
        yield huggingface_hub
    except Exception as error:  # whatever it raises: its messages hold addresses, which may hold secrets
        raise explained(error, name, kind) from None
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _patiently(ask: Callable[[], Result]) -> Result:
    """What ``ask`` returns, asked again where the Hub says that it is busy and for how long."""
    for tried in range(1, TRIES):
        try:
            return ask()
        except Exception as error:
            pause = retry_after(error, tried)
            if pause is None:
                raise
        time.sleep(pause)
    return ask()


def _literally(path: str) -> str:
    """The pattern that only ``path`` matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
