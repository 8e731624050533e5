"""An analysis at the end of a line, ``choicewise report DIR... NAME``: its name, its options, its
tables.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.cli.commands import Command
from choicewise.cli.terminal import print_json, print_parts, tell
from choicewise.errors import UsageError, near_names
from choicewise.ports import Analysis, AnalysisOption, all_of, find

if TYPE_CHECKING:
    from choicewise.cli import options

CHOSEN = "choicewise.analysis"
"""The key of the chosen analysis in what a command's context holds."""


@dataclass(frozen=True)
class ChosenAnalysis:
    """An analysis and the values of its options that were typed."""

    analysis: Analysis
    values: dict[str, Any]

    def show(self, runs: Sequence[Any], output: options.Output) -> None:
        """Print the tables of the ``runs``, or write them as JSON."""
        from choicewise.table import MOST, as_json, terminal

        tables = self.analysis.tables(runs, **self.values)
        if output.json:
            print_json([as_json(table) for table in tables])
            return
        visible = [table for table in tables if not table.data]
        if output.every:
            print_parts(visible)
            return
        print_parts(terminal(table) for table in visible)
        if any(len(table.rows) > MOST for table in visible):
            tell("--all prints every row")


class ReportCommand(Command):
    """A command whose last argument may be the name of an analysis, which may have options of its
    own.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the analysis and its options out of the line, then read the rest."""
        with_value: set[str] = set()
        flags = {"--help"}
        for parameter in self.params:
            if parameter.param_type_name != "option":
                continue
            if getattr(parameter, "is_flag", False):
                flags.update(parameter.opts)
            else:
                with_value.update(parameter.opts)
        # click knows the options of the command alone, and would refuse those of an analysis.
        rest, chosen = split_analysis(args, with_value, flags)
        ctx.meta[CHOSEN] = chosen
        return super().parse_args(ctx, rest)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, the analysis last."""
        return [*super().collect_usage_pieces(ctx), "[ANALYSIS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the analyses with theirs."""
        super().format_options(ctx, formatter)
        rows = [(analysis.name, described(analysis)) for analysis in all_of(Analysis)]
        with formatter.section("Analyses"):
            formatter.write_dl(rows)


def described(analysis: Analysis) -> str:
    """Return what an analysis shows, and its options, for the help."""
    sentences = [analysis.summary]
    for option in analysis.options:
        sentences.append(f"--{option.name}: {option.summary}")
    return " ".join(sentences)


def split_analysis(
    line: Sequence[str], with_value: Collection[str], flags: Collection[str] = ()
) -> tuple[list[str], ChosenAnalysis | None]:
    """Return a line without the analysis at its end and the analysis's options, and the analysis.

    A folder of that name wins, as does whatever is typed as a path, such as ``./signal``.
    ``with_value``: options of the command that are followed by a value; ``flags``: its other
    options. Raises UsageError for two analyses, for an option that the analysis lacks, for a value
    that an option can't have, and for a misspelled name.
    """
    rest = list(line)
    analysis = _last_analysis(rest, with_value)
    values: dict[str, Any] = {}
    if analysis is not None:
        for option in analysis.options:
            rest, text = _without_option(rest, option)
            if text is not None:
                values[option.name] = _value(option, text)
        _refuse_other_options(rest, analysis, {*with_value, *flags})

    arguments = _arguments(rest, with_value)
    if len(arguments) < 2:  # a lone argument is a folder
        return list(line), None
    last = rest[arguments[-1]]
    if analysis is None or last != analysis.name:
        words = [rest[position] for position in arguments]
        for number in range(1, len(words)):
            _refuse_misspelled(words[number], words[:number])
        return list(line), None
    for position in arguments[:-1]:
        if _names_no_folder(rest[position]) and find(Analysis, rest[position]) is not None:
            raise UsageError(f"{rest[position]} and {last} are two analyses; name one at a time")
    del rest[arguments[-1]]
    return rest, ChosenAnalysis(analysis, values)


def _arguments(line: Sequence[str], with_value: Collection[str]) -> list[int]:
    """Return where the words stand that are neither options nor values of options."""
    positions = []
    before = ""
    for position, word in enumerate(line):
        if not word.startswith("-") and before not in with_value:
            positions.append(position)
        before = word
    return positions


def _last_analysis(line: Sequence[str], with_value: Collection[str]) -> Analysis | None:
    # The value of an option of the analysis may stand behind its name, and is no analysis.
    for position in reversed(_arguments(line, with_value)):
        word = line[position]
        if _names_no_folder(word):
            analysis = find(Analysis, word)
            if analysis is not None:
                return analysis
    return None


def _names_no_folder(word: str) -> bool:
    return Path(word).name == word and not Path(word).is_dir()


def _without_option(line: Sequence[str], option: AnalysisOption) -> tuple[list[str], str | None]:
    """Return the line without an option and its value, and the value.

    UsageError if it is given twice.
    """
    rest: list[str] = []
    value = None
    words = iter(line)
    for word in words:
        name, _, text = word.partition("=")
        if name != f"--{option.name}":
            rest.append(word)
            continue
        if value is not None:
            raise UsageError(f"--{option.name} is given twice, and only the last one would count")
        value = text if "=" in word else next(words, "")
    return rest, value


def _refuse_other_options(
    line: Sequence[str], analysis: Analysis, options: Collection[str]
) -> None:
    """Raise UsageError for the first option that neither the command nor the analysis has."""
    for word in line:
        name = word.partition("=")[0]
        if not name.startswith("--") or name in options:
            continue
        names = [f"--{option.name}" for option in analysis.options]
        has = f"it has {' and '.join(names)}" if names else "it has no options"
        raise UsageError(f"the analysis {analysis.name} has no option {name}; {has}")


def _value(option: AnalysisOption, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"--{option.name} can't be {text!r}: {error}") from error


def _refuse_misspelled(word: str, folders: Sequence[str]) -> None:
    if not _names_no_folder(word) or not all(Path(folder).exists() for folder in folders):
        return
    near = near_names(word, [analysis.name for analysis in all_of(Analysis)])
    if near:
        raise UsageError(
            f"{word} is neither a folder nor an analysis; did you mean {' or '.join(near)}?"
        )
