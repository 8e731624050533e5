"""The numbers of an export as a page shows them: ranked, and the runs under names that tell them apart."""

from dataclasses import replace

from choicewise.interchange.write import Export
from choicewise.results.outcome import OutcomeKeeper
from choicewise.results.run import Run
from choicewise.results.suite_parts import averages
from choicewise.results.summary import Summary, summarize
from choicewise.web.study import Study, make_study


def shown_runs(export: Export) -> Study:
    """The study of the export's runs, with the averages of suites of the folders that it names."""
    keeper = OutcomeKeeper()
    study = make_study([_summary(run, keeper) for run in export.runs])
    whole = {run.folder: run for run in export.runs if _is_whole(run)}
    known = {
        folder: {path: summarize(path) for path in (folder / cell.folder for cell in sweep.cells) if path in whole}
        for folder, sweep in export.sweeps
    }
    shown = [each for folder, sweep in export.sweeps for each in averages(folder, sweep, known[folder])]
    return replace(study, averages=tuple(each for each in shown if each.counted))


def _is_whole(run: Run) -> bool:
    """Whether the run has all of its own protocols and no other."""
    return run.protocols.keys() == run.manifest.protocols.keys()


def _summary(run: Run, keeper: OutcomeKeeper) -> Summary:
    """The kept summary where the run has all of its own protocols, else a new one; the run is released."""
    if _is_whole(run):
        return summarize(run.folder)
    made = Summary(run.folder, run.manifest, tuple(run.rows()), keeper.keep(run))
    run.release()
    return made
