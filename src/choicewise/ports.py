"""Every place where an extension plugs in.

An extension is a module with one value, an :class:`Extension`, that lists what it adds::

    # my_package/__init__.py
    from choicewise.ports import Extension, LogReader, calls

    class Diary(LogReader):
        name = "diary"
        summary = "a diary (*.diary)"

        recognises = calls("my_package.diary:recognises")
        read = calls("my_package.diary:read_diary")  # loaded when a diary is read, not before

    EXTENSION = Extension("diaries", [Diary()])

    # pyproject.toml
    [project.entry-points."choicewise.extensions"]
    diaries = "my_package:EXTENSION"

The extensions that come with Choicewise are written in the same way and listed in :data:`BUILT_IN`,
so that nothing is searched at start. Other packages are searched only if no built-in extension has
what a user names, and for ``--help``.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from choicewise.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import typer

    from choicewise.data.items import Item
    from choicewise.logs import Log, Verdict
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.model import Model
    from choicewise.page.charts.chart import Chart
    from choicewise.page.charts.choices import Choices
    from choicewise.page.embed import Section
    from choicewise.page.study import Study
    from choicewise.protocols import metrics, readings
    from choicewise.protocols.protocol import Protocol
    from choicewise.records import Manifest, ServerRecord, Sweep
    from choicewise.requests.request import Prompter
    from choicewise.results.comparison import Comparison
    from choicewise.results.measurement import Measurement
    from choicewise.results.number import Number
    from choicewise.results.outcomes import Summary
    from choicewise.results.run import Run
    from choicewise.running.job import Job, Source
    from choicewise.scoring.combine import Combiner
    from choicewise.scoring.observed import Continuations, Floats
    from choicewise.scoring.probabilities import Judged
    from choicewise.table import Table

BUILT_IN = (
    "choicewise.models",
    "choicewise.extensions.run",
    "choicewise.extensions.endpoints",
    "choicewise.extensions.plot",
    "choicewise.extensions.analyses",
    "choicewise.extensions.cluster",
    "choicewise.extensions.board",
    "choicewise.extensions.interop",
    "choicewise.extensions.training",
    "choicewise.extensions.gguf",
    "choicewise.extensions.comparison",
    "choicewise.extensions.explain",
    "choicewise.extensions.survey",
    "choicewise.extensions.catalogue",
    "choicewise.extensions.prompts",
    "choicewise.extensions.fetch",
    "choicewise.extensions.score",
    "choicewise.extensions.check",
    "choicewise.extensions.doctor",
    "choicewise.extensions.demo",
)
"""Modules that declare what we add: the models of the kernel, and our extensions.

Importing one loads nothing but this module; a test holds that."""

GROUP = "choicewise.extensions"
"""The entry-point group in which other packages list their extensions."""


class Port:
    """Add something to Choicewise: the base of all ports.

    ``name``: lower case, and its only one among the additions to its port; users write it and
    messages repeat it.  ``summary``: a line for help and lists. An addition without a name, or with
    one that Choicewise has, is left out with a warning.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""


P = TypeVar("P", bound=Port)


def calls(function: str) -> Any:
    """Return a method of an addition that calls ``function``, written "MODULE:NAME", with its
    arguments.

    The module is imported at the first call, so that listing what extensions add loads none of
    their code.
    """
    module, _, name = function.partition(":")

    def method(_: Port, *values: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*values, **options)

    return method


def returns(value: str) -> Any:
    """Return a method of an addition that returns ``value``, written "MODULE:NAME" and imported at
    the first call.
    """
    module, _, name = value.partition(":")

    def method(_: Port) -> Any:
        return getattr(import_module(module), name)

    return method


# Models


LOADING = (
    *("dtype", "device", "window", "batch_tokens"),
    *("tokenizer", "adapter", "products", "memory", "rung", "trust_remote_code"),
)
"""Options of loading that the command line, a plan and Python offer for every kind of model."""


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Hold how a model is opened.

    ``options``: the options that were given, by name. ``progress`` receives the progress of
    downloads. ``say`` receives a line now and then, from any thread. ``elsewhere``: other processes
    compute the model, so this process needs no weights.
    """

    options: Mapping[str, Any]
    progress: Callable[..., Any] | None
    say: Callable[[str], None]
    elsewhere: bool = False


class ModelKind(Port):
    """Add a kind of model, chosen by the prefix of the model's name: ``--model NAME:...``.

    ``takes``: the options of :data:`LOADING` that apply to this kind; its further options are part
    of the model's name, as in ``decisions:URL#NAME,repeats=5``. ``because``: why it takes no
    others, such as "is computed by its server". ``revisions``: why a plan can't name revisions of
    it, "" if it can. ``workers``: why several processes can't compute it at once, "" if they can.
    ``remote``: whether another program computes it, which divides the work itself and may refuse a
    single question of a kind that it answers otherwise.

    Example::

        class Steady(ModelKind):
            name = "steady"
            because = "computes nothing"

            def open(self, name, loading):
                from choicewise.models.fake import HashModel

                return HashModel(seed=len(name))
    """

    takes: ClassVar[frozenset[str]] = frozenset()
    because: ClassVar[str] = ""
    revisions: ClassVar[str] = "takes no revisions"
    workers: ClassVar[str] = "is computed in one process"
    remote: ClassVar[bool] = False

    def check(self, name: str) -> None:
        """Raise ModelError if ``name`` can't be of this kind; open nothing.

        It is called before anything is written, so that no secret in an address reaches a file.
        """

    def location(self, name: str) -> str:
        """Return the folder, name on the Hub or address inside ``name``."""
        return name

    def display(self, name: str) -> str:
        """Return ``name`` as messages repeat it, without secrets."""
        return name

    def folder(self, name: str) -> str:
        """Return the name of the folder of its runs; characters that no folder has are replaced
        later.
        """
        return self.location(name).removeprefix(f"{self.name}:")

    def gpus(self, name: str) -> int:
        """Return how many GPUs a process takes that computes it, on a machine that has some."""
        return 1

    def open(self, name: str, loading: Loading) -> Model:
        """Return the model. ``loading`` has only options that the kind ``takes``. Raises
        ModelError.

        Weights are loaded and servers are called at the first question, not here.
        """
        raise NotImplementedError

    def measure_noise(self, model: Model) -> tuple[dict[str, Any], str] | None:
        """Measure what ``choicewise check`` prints of ``model``: None for the self-check and
        further compute paths.

        Return the fields of its :class:`choicewise.models.model.SelfCheck` with ``noise`` (nats a
        token) and ``paths``, and from what the differences are measured, in words.
        """
        return None

    def examine(self, model: Model) -> tuple[dict[str, Any], list[str | Table]] | None:
        """Return what ``choicewise check`` prints of a model behind a server: as JSON, whose
        ``notes`` go to stderr, and as lines and tables. None for other models.
        """
        return None

    def notes(self, folder: Path, manifest: Manifest) -> Iterator[str]:
        """Yield the lines that every report of a run of such a model prints on stderr."""
        return iter(())

    def read_exchange(self, text: str) -> Mapping[str, Any]:
        """Return what a run keeps of one question and its answer: ``text`` is the column
        ``exchange`` of the answer.
        """
        raise NotImplementedError

    def exchange_lines(self, exchange: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines that ``choicewise explain`` prints of what :meth:`read_exchange`
        returned.
        """
        raise NotImplementedError

    def closing_record(self, folder: Path, manifest: Manifest, now: ServerRecord) -> ServerRecord:
        """Return what the run in ``folder`` keeps of its server after the last question.

        ``manifest``: the run's, with what it has kept so far. ``now``: what the model says of its
        server.
        """
        return manifest.server or now


class ModelFile(Port):
    """Add a format of models in one file: ``--model FILE.NAME``, ``ORG/NAME:FILE.NAME`` on the Hub,
    or a folder that holds one such file and no safetensors.

    ``name``: how the files' names end. ``summary``: what they hold.

    Example::

        class Zipped(ModelFile):
            name = "zip"
            summary = "a model folder"

            def open(self, file, loading):
                from tempfile import mkdtemp
                from zipfile import ZipFile

                from choicewise.models.local.folder_model import FolderModel

                folder = mkdtemp()
                ZipFile(file).extractall(folder)
                return FolderModel(folder, **loading.options)
    """

    def is_part(self, name: str) -> bool:
        """Return whether the file ``name`` is one of several parts of a model."""
        return False

    def open(self, file: Path, loading: Loading) -> FolderModel:
        """Return the model in ``file``. ``loading`` has options of local models. Raises ModelError."""
        raise NotImplementedError


# Finished runs


@dataclass(frozen=True, kw_only=True)
class AnalysisOption:
    """Describe an option of an analysis, typed as ``report DIR... ANALYSIS --NAME VALUE``.

    ``name``: the parameter of :meth:`Analysis.tables` that takes the value and has the default.
    ``read`` makes the value of the typed text; ValueError if the text is no such value.
    """

    name: str
    summary: str
    read: Callable[[str], Any] = str


class Analysis(Port):
    """Add a question about finished runs, answered in tables: ``choicewise report DIR... NAME``.

    ``needs``: "summaries" if the numbers and the decisions of every item are enough, "runs" if
    observations are read.  ``options``: what a user may choose. The tables are printed, or written
    as JSON; an analysis formats no number.

    Example::

        class Counts(Analysis):
            name = "counts"
            summary = "Count the numbers of each run."

            def tables(self, runs):
                from choicewise.table import Column, Table

                columns = [Column("model"), Column("numbers", "count")]
                rows = [[run.manifest.model.name, len(run.rows)] for run in runs]
                title = "numbers of each run"
                return [Table(name="counts", title=title, columns=columns, rows=rows)]
    """

    needs: ClassVar[Literal["runs", "summaries"]] = "summaries"
    options: ClassVar[Sequence[AnalysisOption]] = ()

    # The stars let an analysis name just the options that it has.
    def tables(self, runs: Sequence[Any], *_: Any, **options: Any) -> Sequence[Table]:
        """Return the tables of all ``runs`` together: Run or Summary, as ``needs`` says; by default
        those of each run.

        ``options``: the values that were given, by name. Raises UsageError, with the reason, if
        these runs can't answer the question.
        """
        tables: list[Table] = []
        for run in runs:
            tables.extend(self.run_tables(run, **options))
        return tables

    def run_tables(self, run: Any, **options: Any) -> Iterable[Table]:
        """Return the tables of one run, if the analysis looks at its runs one by one."""
        raise NotImplementedError


class Statistic(Port):
    """Add what the summary of a run keeps beside its numbers, so that a page or an analysis need
    not read the observations again.

    It is kept of runs with many items (:data:`choicewise.results.summary.MANY`), as JSON under its
    ``name``, until the run or the code of the extension changes. ``summary``: what is kept.

    Example::

        class Doubts(Statistic):
            name = "doubts"
            summary = "the Brier score under each protocol"

            def protocols(self, protocols):
                from choicewise.protocols.between import apply_metrics

                return apply_metrics(protocols, ["brier"]).protocols

            def data(self, run):
                return {name: measured.overall for name, measured in run.measurements.items()}
    """

    def protocols(self, protocols: Mapping[str, Protocol]) -> Mapping[str, Protocol]:
        """Return the protocols, by name, that it is computed from; none if there is nothing to
        keep.

        ``protocols``: those of the run. All need the requests of one of these: the observations of
        all statistics and numbers are read once.
        """
        raise NotImplementedError

    def data(self, run: Run) -> Any:
        """Return plain data that JSON can hold; ``run`` has the :meth:`protocols`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Hold what a report prints of estimates.

    ``notes`` go to stderr, ``records`` beside the numbers in JSON, ``tables`` below all numbers,
    ``lines`` below the first screen.
    """

    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()


class Estimator(Port):
    """Add estimates for all questions, which ``choicewise report`` prints if a run has only a
    sample of them.

    Example::

        class Largest(Estimator):
            name = "largest"

            def estimates(self, runs, rows):
                from choicewise.ports import Estimates

                most = max(row.counts.n for row in rows)
                return Estimates(lines=[f"largest sample: {most}"])
    """

    def estimates(self, runs: Sequence[Summary], rows: Sequence[Number]) -> Estimates:
        """Return the estimates of all samples among ``runs``; ``rows``: the numbers of all runs."""
        raise NotImplementedError


# Two runs beside each other


class PairStatistic(Port):
    """Add a figure of two measurements that ``choicewise compare A B --ids`` prints below their
    difference.

    JSON has it under its ``name``. It is measured where both runs were asked the same tokens under
    one protocol and the answers were observed, else it is null.

    Example::

        class Agreement(PairStatistic):
            name = "agreement"

            def figures(self, runs, pairs):
                from choicewise.results.measurement import paired_predictions

                shares = []
                for pair in pairs:
                    left, right = paired_predictions(pair)
                    shares.append(float((left == right).mean()))
                return shares

            def lines(self, comparison, figure):
                yield f"the same choice is predicted for {100 * figure:.1f} % of the items"
    """

    def figures(
        self, runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]
    ) -> Sequence[Any]:
        """Return a figure for each of ``pairs``, measurements of ``runs``: plain data, or a
        dataclass of such.
        """
        raise NotImplementedError

    def lines(self, comparison: Comparison, figure: Any) -> Iterator[str]:
        """Yield the lines that are printed below ``comparison``."""
        raise NotImplementedError


class PairAnalysis(Port):
    """Compare two runs of certain kinds in place of the difference of their numbers.

    ``choicewise compare A B`` prints it, and ``choicewise ladder`` with ``--served`` after its last
    step. ``summary``: what the two are, as messages say it: "a decision endpoint beside own
    computation".

    Example::

        class Windows(PairAnalysis):
            name = "windows"
            summary = "a model beside one with a longer window"

            def sides(self, left, right):
                windows = [run.manifest.model.window for run in (left, right)]
                if windows[0] == windows[1]:
                    return None
                return (left, right) if windows[0] < windows[1] else (right, left)

            def compare(self, first, second, protocols, items):
                return [{"short": str(first.folder), "long": str(second.folder)}]

            def tables(self, results):
                for result in results:
                    yield f"{result['short']} has the shorter window"
    """

    def sides(self, left: Run, right: Run) -> tuple[Run, Run] | None:
        """Return the two runs in the order in which they are compared, None if they are not of
        these kinds.
        """
        raise NotImplementedError

    def compare(self, first: Run, second: Run, protocols: Sequence[str], items: bool) -> list[Any]:
        """Return the results, which JSON has as they are: plain data, or dataclasses of such.

        ``protocols``: only these, of either run, or all if there are none. ``items``: also of every
        item. Raises UsageError, with the reason, if these two can't be compared.
        """
        raise NotImplementedError

    def tables(self, results: Sequence[Any]) -> Iterator[Any]:
        """Yield the tables (:class:`choicewise.table.Table`) and texts that a terminal shows of
        ``results``.
        """
        raise NotImplementedError


# How an item is prepared, asked, scored and decided


class Preparation(Port):
    """Add a change of an item's texts before templates show them: ``--protocol
    NAME@prepare=shouted``.

    Example::

        class Shouted(Preparation):
            name = "shouted"
            summary = "the question in capital letters"

            def change(self, item):
                from dataclasses import replace

                return replace(item, question=item.question.upper())
    """

    def change(self, item: Item) -> Item:
        """Return the item that templates show.  Raises DataError for an item that lacks what it
        needs.
        """
        raise NotImplementedError


class Reading(Port):
    """Add a way to ask a model and to make one number per choice of its answers: ``--protocol
    NAME@reading=contrary``.

    Example::

        class Contrary(Reading):
            name = "contrary"
            summary = "minus log P(continuation | context)"

            def declaration(self):
                from choicewise.protocols.readings import Reading

                return Reading(self.summary, ("sum",), one_likelihood=True)

            def prompter(self):
                from choicewise.requests.prompters import ChoicePrompter

                return ChoicePrompter()

            def combiner(self):
                from choicewise.scoring.combine import Combiner

                return Combiner(lambda protocol, observed: -observed.scores(protocol.score))
    """

    def declaration(self) -> readings.Reading:
        """Return what it needs of a model, which scores it has, and which axes it takes."""
        raise NotImplementedError

    def prompter(self) -> Prompter:
        """Return what makes the questions for a model of an item's prompt."""
        raise NotImplementedError

    def combiner(self) -> Combiner:
        """Return what makes one number per choice of the observations."""
        raise NotImplementedError


class Extraction(Port):
    """Add a rule that finds an option's letter in generated text: ``--protocol
    NAME@decision=last-capital``.

    Example::

        class LastCapital(Extraction):
            name = "last-capital"
            summary = "the last capital letter of an option"

            def letter(self, text, letters):
                return max(letters, key=text.rfind) if any(letter in text for letter in letters) else None
    """

    def letter(self, text: str, letters: str) -> str | None:
        """Return the letter among ``letters`` that ``text`` decides for, None if it decides for
        none.
        """
        raise NotImplementedError


class Score(Port):
    """Add a number for every choice from the log-probabilities of its tokens: ``--protocol
    NAME@score=strongest``.

    Readings that look at tokens one by one have it. Stored runs have it as well: no model is
    called.

    Example::

        class Strongest(Score):
            name = "strongest"
            summary = "max log P(token), in nats: the strongest link of the continuation"

            def values(self, observed):
                import numpy as np

                return observed.reduce(np.maximum, observed.logprobs)
    """

    def values(self, observed: Continuations) -> Floats:
        """Return one number per row of ``observed``, float64 [rows]: greater is better, NaN is
        missing.
        """
        raise NotImplementedError


class Metric(Port):
    """Add a number made of the probabilities of an item's choices: ``--protocol
    NAME@metric=doubt``, and ``--metric doubt`` of stored runs.

    It is the mean of the items' numbers. No model is called.

    Example::

        class Doubt(Metric):
            name = "doubt"
            summary = "1 minus the highest probability of an item"

            def declaration(self):
                from choicewise.protocols.metrics import Metric

                return Metric(self.summary, softmax=True, higher=False)

            def credits(self, judged):
                return 1 - judged.confidence
    """

    def declaration(self) -> metrics.Metric:
        """Return its range, which way is better, and which scores it can be made of."""
        raise NotImplementedError

    def credits(self, judged: Judged) -> Floats:
        """Return one number per item of ``judged``, float64 [items]: NaN is missing."""
        raise NotImplementedError


# Where models compute


@dataclass(frozen=True, kw_only=True)
class ModelRuns:
    """Describe the runs of one model, for the processes that compute them.

    ``model``: opened without its weights, None where it is computed; ``job``: of it alone.
    ``folders``: the run folder of every dataset, by the dataset's name. ``scratch``: the folder for
    what is not merged yet. ``go_on``: True if the other datasets are evaluated after one has
    failed. ``command``: words for the manifests.
    """

    model: Model | None = None
    job: Job
    folders: Mapping[str, Path]
    scratch: Path
    go_on: bool = False
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Hold what an executor calls while it computes.

    ``progress``: with the name of a model and the done share of its work, from 0 to 1. ``say``:
    with a line. ``ended``: with the name of a model and, for every dataset, why it failed, "" if it
    did not.
    """

    progress: Callable[[str, float], None]
    say: Callable[[str], None]
    ended: Callable[[str, Mapping[str, str]], None]


class Executor(Port):
    """Add a way to compute runs in other processes: ``--executor NAME``, with ``--workers N``.

    Without one this process computes everything.

    Example::

        class Alone(Executor):
            name = "alone"

            def evaluate(self, models, workers, watcher):
                from choicewise.extensions.run.sweep import evaluate_runs

                for runs in models:
                    failures = evaluate_runs(runs)
                    watcher.ended(runs.job.models[0].label, failures)
    """

    def device(self) -> str | None:
        """Return the device on which models compute that name none; None for that of this
        machine.
        """
        return None

    def evaluate(self, models: Iterable[ModelRuns], workers: int | None, watcher: Watcher) -> None:
        """Write the run folders of all ``models``; taking the next one opens the model.

        ``workers``: processes for each model, None for as many as there is room for. Raises the
        error of a run unless its ``go_on`` is True.
        """
        raise NotImplementedError


class TaskArray(Port):
    """Add a system that numbers the tasks of an array: ``--shard NAME`` asks the part of a run that
    this task has.

    Example::

        class Indexed(TaskArray):
            name = "indexed"

            def part(self, environment):
                return int(environment["JOB_COMPLETION_INDEX"]) + 1, int(environment["JOBS"])
    """

    def part(self, environment: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of this task, from 1 on, and how many tasks there are.

        Raises ValueError if ``environment`` does not say so; the message completes "shard must be".
        """
        raise NotImplementedError


# Other tools


class TaskLibrary(Port):
    """Add tasks of another tool, which bring data and metrics of their own: ``--protocol
    NAME:TASK``.

    ``takes``: those of a job's options ``include_path`` and ``allow_task_code`` that its tasks
    have.

    Example::

        class Riddles(TaskLibrary):
            name = "riddles"
            summary = "riddles of two choices"

            def sources(self, selectors, job):
                from choicewise.protocols.catalogue import resolve
                from choicewise.running.job import Source

                recipes = resolve("options/cloze:sum")
                files = [f"{selector.removeprefix('riddles:')}.csv" for selector in selectors]
                return [Source(tuple(recipes), None, path=file, recipes=recipes) for file in files]
    """

    takes: ClassVar[frozenset[str]] = frozenset()

    def sources(self, selectors: Sequence[str], job: Job) -> Sequence[Source]:
        """Return a source of questions for each task that ``selectors`` name; data are read when it
        is opened.

        ``job``: the whole job, with the options that tasks have. Raises ProtocolError if a selector
        names no task, and UsageError if the tool is needed and not installed.
        """
        raise NotImplementedError


class LogReader(Port):
    """Read the logs of another tool: ``choicewise import PATH --out DIR``. ``summary``: the tool
    and its files.

    ``generic``: whether its files are recognised by columns that any tool may write; then all other
    readers are tried first.

    Example::

        class Diary(LogReader):
            name = "diary"
            summary = "a diary: a line for each item, its right choice and its log-likelihoods (*.diary)"

            def recognises(self, path):
                return path.suffix == ".diary"

            def read(self, paths, results):
                from choicewise.logs import Log, LoggedChoice, LoggedItem

                for path in paths:
                    items = []
                    for line in path.read_text().splitlines():
                        name, right, *numbers = line.split(";")
                        choices = [LoggedChoice(loglikelihood=float(number)) for number in numbers]
                        items.append(LoggedItem(id=name, gold=(int(right),), choices=tuple(choices)))
                    yield Log(tool="diary", model="someone", task=path.stem, items=items)
    """

    generic: ClassVar[bool] = False

    def recognises(self, path: Path) -> bool:
        """Return whether ``path`` is of the tool, by its name or its first few thousand bytes;
        never raise.
        """
        raise NotImplementedError

    def read(self, paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
        """Yield a log for each model and task, whether a file holds several or several files hold
        one.

        ``results``: the file with the totals, if the user named it. Raises DataError, naming file
        and line.
        """
        raise NotImplementedError

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return how the tool's own values of an item follow from its answers, by their names in
        the log.

        The import refuses a log whose ``acc`` does not follow, and names the items of others.
        Empty: the values are those of lm-evaluation-harness.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class Export:
    """Hold the runs to export, one read at a time and released by the writer, and what else a
    format has a place for.

    ``sweeps``: the folders of several runs among what was named, for the averages of their suites.
    ``url``: where the evaluation can be looked at; ``organization``: who evaluated; both may be
    empty. ``table``: one of the writer's ``tables``. ``beside``: the further files, as
    :meth:`Writer.endings` lists them.
    """

    runs: tuple[Run, ...]
    sweeps: tuple[tuple[Path, Sweep], ...] = ()
    url: str = ""
    organization: str = ""
    table: str = ""
    beside: tuple[Path, ...] = ()


class Writer(Port):
    """Add a form in which other tools take numbers: ``choicewise export DIR... --format NAME --out
    OUT``.

    ``summary``: who reads it. ``output``: "folder" if it fills a new folder, "file" if it writes a
    new file, "store" if it adds to what is there. Folders and files are complete or as they were
    before. ``tables``: what its table can show (``--table``), the first unless the user names one.
    ``has_source``: it stores the ``url`` and the ``organization`` of the export.

    Example::

        class Values(Writer):
            name = "values"
            summary = "a text file of each run: a line for each number"

            def write(self, export, out):
                for number, run in enumerate(export.runs):
                    lines = [f"{row.identity.protocol} {row.value}" for row in run.rows()]
                    (out / f"{number}.txt").write_text("\\n".join(lines))
                return ["intervals: the format has no place for them"]
    """

    output: ClassVar[Literal["folder", "file", "store"]] = "folder"
    tables: ClassVar[Sequence[str]] = ()
    has_source: ClassVar[bool] = False

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to ``out`` and return a line, with the reason, for each thing that
        is left out.

        Raises UsageError if these runs can't be written so.
        """
        raise NotImplementedError

    def check(self, out: Path) -> None:
        """Raise UsageError if ``out`` can't be of this format; it is called before anything is
        computed.
        """

    def replaces(self, file: Path) -> bool:
        """Return whether the existing ``file`` is an earlier export of this format, so that it may
        be replaced.
        """
        return False

    def endings(self, table: str) -> Sequence[str]:
        """Return what the names of further files end with, which a writer of a file writes beside
        it.
        """
        return ()


# Charts and the page


class ChartKind(Port):
    """Add a chart of runs: ``choicewise plot DIR... NAME --out FILE``, and ``run.chart(NAME)`` in a
    notebook.

    ``summary``: what it shows, in a few words. ``needs``: what runs must have for it, likewise.
    ``uses``: the fields of :class:`~choicewise.page.charts.choices.Choices` that it looks at.
    ``metrics``: whether it also draws numbers that are no shares of 1.

    Example::

        class Sizes(ChartKind):
            name = "sizes"
            summary = "how many items each run has"
            needs = "a run"

            def draw(self, study, choices):
                from choicewise.page.charts import chart

                values = []
                for run in study.runs:
                    values.append({"kind": "run", "model": run.label, "items": run.items})
                across = chart.number("items")
                down = {"field": "model", "type": "nominal", "title": None}
                bars = chart.layer("run", {"type": "bar"}, x=across, y=down)
                about = "Items of each run"
                frame = {"width": choices.width, "height": 200, "description": about}
                margins = {"left": 120, "right": 24, "top": 16, "bottom": 44}
                spec = chart.frame(values, [bars], **frame, **margins)
                return chart.Chart("sizes", about, spec)
    """

    needs: ClassVar[str] = ""
    uses: ClassVar[Sequence[str]] = ()
    metrics: ClassVar[bool] = False

    def lacks(self, study: Study) -> str:
        """Return why the runs of ``study`` can't be drawn so, in words; empty if they can."""
        return ""

    def draw(self, study: Study, choices: Choices) -> Chart:
        """Return the chart. Raises UsageError for choices that are wrong or missing."""
        raise NotImplementedError


class PageSections(Port):
    """Add sections of ``choicewise page``, which stand between the comparison of models and the
    items.

    Example::

        class Sizes(PageSections):
            name = "sizes"

            def sections(self, study):
                from choicewise.page.embed import Section

                items = sum(run.items for run in study.runs)
                text = f"<p>All runs have {items:,} items.</p>"
                yield Section(name="sizes", title="How many items?", html=text)
    """

    def sections(self, study: Study) -> Iterator[Section]:
        """Yield a section for everything that the runs of ``study`` have to show; none if there is
        nothing.
        """
        raise NotImplementedError


class Site(Port):
    """Add pages of all runs, written into a folder: ``choicewise page DIR... --out FOLDER``.

    Example::

        class Index(Site):
            name = "index"

            def write(self, folders, out, metrics):
                out.mkdir()
                (out / "index.html").write_text("<br>".join(str(folder) for folder in folders))
                yield f"wrote {out}"
    """

    def write(self, folders: Sequence[Path], out: Path, metrics: Sequence[str]) -> Iterator[str]:
        """Write the pages of all runs below ``folders`` into ``out``, and yield the lines that say
        what was written.

        ``metrics``: those that are shown beside the runs' own. Raises UsageError if ``out`` holds
        something else.
        """
        raise NotImplementedError


# The command line


class Command(Port):
    """Add a verb of the command line: ``choicewise NAME``. ``summary``: its line in ``choicewise
    --help``.

    ``passes_on``: whether all that follows the name, ``--help`` too, reaches the function as a list
    of words.

    Example::

        class Hello(Command):
            name = "hello"
            summary = "Say hello."

            def app(self):
                return lambda: print("hello")
    """

    passes_on: ClassVar[bool] = False

    def app(self) -> typer.Typer | Callable[..., None]:
        """Return the typer application or the function. What the command needs is imported here."""
        raise NotImplementedError


# Extensions


V = TypeVar("V")


class OpenTable(dict[str, V]):
    """Look up a table of the kernel; a row that it lacks is looked up among what extensions add to
    ``port``.

    ``row`` makes a row of the table from what an extension adds.
    """

    def __init__(self, rows: Mapping[str, V], port: type[P], row: Callable[[P], V]) -> None:
        super().__init__(rows)
        self._find = partial(find, port)
        self._row = row

    def __missing__(self, name: str) -> V:
        addition = self._find(name)
        if addition is None:
            raise KeyError(name)
        return self._row(addition)


@dataclass(frozen=True)
class Extension:
    """List what one package adds. ``names``: public names of ``choicewise`` → the modules that
    define them.
    """

    name: str
    adds: Sequence[Port]
    names: Mapping[str, str] | None = None


def built_in_extensions() -> Iterator[Extension]:
    """Yield the extensions of :data:`BUILT_IN`, in this order; each is imported when its turn
    comes.
    """
    for module in BUILT_IN:
        yield import_module(module).EXTENSION


@cache
def other_extensions() -> tuple[Extension, ...]:
    """Return those of other packages by the names of their entry points; one that can't be loaded
    is a warning.
    """
    # This takes some 20 ms to import, which most commands need not spend.
    from importlib.metadata import entry_points

    extensions = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        extension = _loaded(point)
        if extension is not None:
            extensions.append(extension)
    return tuple(extensions)


def _loaded(point: EntryPoint) -> Extension | None:
    """Return the extension of an entry point without additions that can't be used; each fault is a
    warning.
    """
    title = f"the extension {point.name} ({point.value})"
    try:
        extension = point.load()
    except (Exception, SystemExit) as error:  # a command that needs nothing of it goes on
        warnings.warn(f"{title} can't be loaded: {type(error).__name__}: {error}", stacklevel=3)
        return None
    if not isinstance(extension, Extension) or not isinstance(extension.adds, Sequence):
        warnings.warn(f"{title} is no Extension(NAME, [ADDITION, ...])", stacklevel=3)
        return None
    usable = []
    for addition in extension.adds:
        problem = _problem(addition)
        if problem:
            warnings.warn(f"{title} is used without one addition: {problem}", stacklevel=3)
        else:
            usable.append(addition)
    return replace(extension, adds=usable)


def _problem(addition: object) -> str:
    """Return why something that another package adds can't be used, "" if it can."""
    if isinstance(addition, type):
        return f"{addition.__name__} is a class; list an instance, {addition.__name__}()"
    if not isinstance(addition, Port):
        return f"{addition!r} is of no port"
    name = getattr(addition, "name", "")
    if not isinstance(name, str) or not name:
        return f"{type(addition).__name__} has no name"
    if isinstance(addition, Analysis) and not isinstance(addition.options, Sequence):
        return f"options of {name} are no list"
    for port in Port.__subclasses__():
        if isinstance(addition, port) and _built_in(port, name) is not None:
            return f"Choicewise has a {port.__name__} called {name}; choose another name"
    return ""


def all_of(port: type[P]) -> list[P]:
    """Return everything of a port: of the built-in extensions first, then of other packages."""
    additions: list[P] = []
    for extension in (*built_in_extensions(), *other_extensions()):
        for addition in extension.adds:
            if isinstance(addition, port):
                additions.append(addition)
    return additions


@cache
def source_digest(addition: Port) -> str:
    """Return the sha256 (64 hex) of the file that defines an addition, or of its package: what is
    stored of its numbers depends on it.
    """
    file = sys.modules[type(addition).__module__].__file__
    if file is None:
        return hashlib.sha256(b"").hexdigest()
    files = [Path(file)]
    # What a package declares in its first file is computed by the others.
    if files[0].name == "__init__.py":
        files = sorted(files[0].parent.rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find(port: type[P], name: str) -> P | None:
    """Return the addition of that name, or None; UsageError if two other packages add it.

    The search ends at the first built-in extension that has the name, and imports none after it.
    Other packages are searched only if no built-in extension has the name.
    """
    addition = _built_in(port, name)
    if addition is not None:
        return addition
    owners = []
    for extension in other_extensions():
        theirs = _named(port, name, extension)
        if theirs is not None:
            owners.append(extension.name)
            addition = theirs
    if len(owners) > 1:
        raise UsageError(f"{' and '.join(owners)} both add {name}; uninstall one of them")
    return addition


def _built_in(port: type[P], name: str) -> P | None:
    for extension in built_in_extensions():
        addition = _named(port, name, extension)
        if addition is not None:
            return addition
    return None


def _named(port: type[P], name: str, extension: Extension) -> P | None:
    for addition in extension.adds:
        if isinstance(addition, port) and addition.name == name:
            return addition
    return None
