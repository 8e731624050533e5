"""Climb between two protocols of a run, for Python and for the command line."""

from __future__ import annotations

from pathlib import Path

from choicewise.errors import ProtocolError, UsageError
from choicewise.protocols.between import End, apply_metrics, under_metrics
from choicewise.protocols.catalogue import names, one, variant_of
from choicewise.protocols.protocol import signature
from choicewise.results.ladder import BothWays, both_ways
from choicewise.results.run import Run, meanings_of, open_run, warn_of_variants
from choicewise.results.sweep import one_run


def climb(run: Run | str | Path, start: str, end: str, metric: str | None = None) -> BothWays:
    """Show what each axis changes between two protocols of a run: points, error, items.

    - ``run``: a run, or its folder.
    - ``start`` and ``end``: names of protocols; an entry with several scores means its first.
    - ``metric``: another number than accuracy, such as ``"brier"``.

    ``choicewise ladder P Q DIR`` prints the same.  Raises UsageError if the run lacks one of the
    two, or if both are the same.
    """
    opened_run = opened(run)
    first, _ = named_end(start, opened_run)
    last, _ = named_end(end, opened_run)
    refuse_same(first, last)
    if metric is not None:
        opened_run, first, last = measured(opened_run, first, last, metric)
    return both_ways(opened_run, first, last, names())


def opened(run: Run | str | Path) -> Run:
    """Return ``run``, or the one in the folder of that name."""
    if isinstance(run, Run):
        return run
    return open_run(one_run(run))


def named_end(text: str, run: Run) -> tuple[End, str]:
    """Return the protocol that ``text`` names in the run or the catalogue, and its selector."""
    end = None
    try:
        end = one(text)
    except ProtocolError:
        # The catalogue does not know the name of a file's protocol.
        if text not in run.protocols and variant_of(text, run.protocols, str(run.folder)) is None:
            raise
    if text in run.protocols:
        protocol = run.protocols[text]
        if end is None or run.on_its_split({text: end.protocol}).get(text) != protocol:
            return End(text, protocol, text), signature(protocol)
        return end, text
    meanings = meanings_of(text if end is None else end.name, run)
    warn_of_variants({run.folder: meanings})
    (meaning,) = meanings
    if end is not None and meaning.name == meaning.meant:
        return end, text
    is_catalogued = meaning.meant in names().values()
    word = meaning.name if is_catalogued else signature(meaning.protocol)
    return End(meaning.name, meaning.protocol, meaning.name), word


def refuse_same(start: End, end: End) -> None:
    """Raise UsageError if the ends of a ladder are one protocol, or have one name."""
    if start.protocol == end.protocol:
        raise UsageError(f"{start.name} and {end.name} are the same protocol; name two that differ")
    if start.name == end.name:
        raise UsageError(
            f"two protocols are called {start.name}; give one of the files another name"
        )


def measured(run: Run, start: End, end: End, metric: str) -> tuple[Run, End, End]:
    """Return the run and both ends of a ladder under ``metric``.

    Raises UsageError if an end can't have it, or if both become the same.
    """
    new_start = _under_metric(start, metric)
    new_end = _under_metric(end, metric)
    if new_start.protocol == new_end.protocol:
        raise UsageError(
            f"{start.name} and {end.name} are the same protocol under {metric}, which is of one "
            "score"
        )
    recipes = apply_metrics(run.protocols, [metric]).protocols
    return run.under(recipes), new_start, new_end


def _under_metric(end: End, metric: str) -> End:
    ((name, protocol),) = under_metrics({end.name: end.protocol}, [metric]).items()
    return End(name, protocol, end.label)
