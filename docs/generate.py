"""Writes the pages that follow from the code: commands, Python, scores, the catalogue, and the notebook as a page.

python docs/generate.py [--check]

``--check`` writes nothing, and ends with 1 where a page is not what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

import choicewise
from choicewise import cli, errors
from choicewise.cli.analysis import ReportCommand, described
from choicewise.cli.commands import help_record
from choicewise.data.benchmarks import benchmarks
from choicewise.data.files import ROW_READERS
from choicewise.page.document import write_page
from choicewise.ports import Analysis, LogReader, Writer, all_of
from choicewise.protocols.catalogue import Entry, entries, groups, suite, suite_names
from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES
from choicewise.protocols.protocol import axis_differences, signature
from choicewise.protocols.readings import (
    ACROSS,
    ALONG,
    CONDITIONAL,
    OVER_CHAINS,
    OVER_SPELLINGS,
    READINGS,
    SELECT,
    SUMS,
    TOKENWISE,
)
from choicewise.scoring.scores import SCORES

DOCS = Path(__file__).resolve().parent
SITE = DOCS.parent / "zensical.toml"
NOTE = "<!-- Written by docs/generate.py from the code: change that, and run it again. -->"


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    made = {
        "reference/commands.md": command_page(),
        "reference/python.md": python_page(),
        "reference/scores.md": score_page(),
        "reference/formats.md": format_page(),
        "catalogue/index.md": catalogue_page(),
        "catalogue/suites.md": suite_page(),
        **{
            f"catalogue/{family}.md": family_page(family, inside)
            for family, inside in families().items()
        },
        **notebook_pages(),
    }
    files = {DOCS / name: text for name, text in made.items()} | {SITE: site_text()}
    return files | {DOCS / "llms.txt": llms_text(files)}


# The command line


def command_page() -> str:
    """Every command with its arguments and options, and the exit codes."""
    parts = ["# Commands", NOTE]
    parts.append(
        "Every command with its arguments and options, and the exit codes. Results go to stdout, notes and progress to"
        " stderr. An option that would do nothing is refused, and so is one that is given twice where only the last"
        " would count."
    )
    rows = [("code", "means"), *exit_codes()]
    parts += ["## Exit codes", table(rows)]
    root = typer.main.get_command(cli.app)
    with root.make_context("choicewise", [], resilient_parsing=True) as context:
        for name, command in root.commands.items():  # type: ignore[attr-defined]
            parts += command_parts(name, command, context, 2)
    return "\n\n".join(parts) + "\n"


def exit_codes() -> list[tuple[str, str]]:
    """Return each exit code and its meaning, from the docstrings of the command line and of the error classes."""
    said = re.search(r"Exit codes: (.*?)\.\n", cli.__doc__ or "", re.DOTALL)
    assert said is not None
    parts = " ".join(said[1].split()).split(", ")
    short = dict(re.match(r"(\d+) (.*)", part).groups() for part in parts)  # type: ignore[union-attr]
    classes = {kind.exit_code: kind for kind in errors.ChoicewiseError.__subclasses__()}
    longer = {str(code): first_line(kind.__doc__ or "") for code, kind in classes.items()}
    return [
        (f"`{code}`", text + (f": {longer[code]}" if code in longer else ""))
        for code, text in short.items()
    ]


def command_parts(name: str, command: Any, parent: Any, depth: int) -> Iterator[str]:
    """What a command does, its arguments and its options; then its own commands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    inside = getattr(command, "commands", {})
    yield f"{'#' * depth} `{context.command_path}`"
    yield "\n\n".join(marked(part) for part in paragraphs(command.help or ""))
    records = {"argument": [], "option": []}  # type: dict[str, list[tuple[str, str]]]
    for each in command.get_params(context):
        spelled, text = help_record(each, context)
        if each.name != "help":
            records[each.param_type_name].append(
                (f"`{spelled}`", marked(re.sub(r"\s+", " ", text)))
            )
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"<!-- not run: usage -->\n```text\n{usage}\n```"
    for kind, rows in records.items():
        if rows:
            yield table([(kind, "meaning"), *rows])
    if isinstance(command, ReportCommand):
        analyses = [
            (f"`{analysis.name}`", marked(described(analysis))) for analysis in all_of(Analysis)
        ]
        yield table([("analysis", "meaning"), *analyses])
    for each, own in inside.items():
        yield from command_parts(each, own, context, depth + 1)


# Python


def python_page() -> str:
    """The public names of the package, and the methods of a run."""
    parts = [
        "# Python",
        NOTE,
        "What `import choicewise` has, how it is called, and what it raises. Tables are Arrow tables: `.to_pandas()`,"
        " `.to_pylist()`. Everything is loaded when it is used.",
    ]
    for name in sorted(choicewise.__all__, key=lambda name: (name[0].isupper(), name)):
        # A package that is loaded hides the function of its name.
        thing = write_page if name == "page" else getattr(choicewise, name)
        parts += member_parts(f"choicewise.{name}", thing, 2)
    parts.append("## Errors")
    parts.append(docstring(errors))
    kinds = [errors.ChoicewiseError, *errors.ChoicewiseError.__subclasses__(), errors.MissingData]
    rows = [
        (f"`{kind.__name__}`", f"`{kind.exit_code}`", marked(first_line(kind.__doc__ or "")))
        for kind in kinds
    ]
    parts.append(table([("`choicewise.errors`", "exit code", "means"), *rows]))
    return "\n\n".join(parts) + "\n"


def member_parts(path: str, thing: Any, depth: int) -> Iterator[str]:
    """A function, or a class with its public methods: how it is called, and its docstring."""
    yield f"{'#' * depth} `{path}`"
    if not inspect.isclass(thing):
        yield call(path, thing)
        yield docstring(thing)
        return
    owner = path.rpartition(".")[2]
    own = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", owner).lower()
    if "__call__" in vars(thing):
        yield call(path, thing)
    yield docstring(thing)
    for name, member in vars(thing).items():
        if name.startswith("_") and name != "__call__":
            continue
        if inspect.isfunction(member):
            yield f"{'#' * (depth + 1)} `{owner}.{name}`"
            yield call(own if name == "__call__" else f"{own}.{name}", member)
            yield docstring(member)
        elif (documented := getattr(member, "__doc__", None)) and not isinstance(member, str):
            yield f"{'#' * (depth + 1)} `{owner}.{name}`"
            yield "\n\n".join(marked(part) for part in paragraphs(inspect.cleandoc(documented)))


def call(path: str, function: Any) -> str:
    """How a function is called, a parameter a line."""
    parameters = [
        each for name, each in inspect.signature(function).parameters.items() if name != "self"
    ]
    lines, bare = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not bare:
            lines, bare = [*lines, "*"], True
        default = "" if each.default is each.empty else f" = {spelled(each.default)}"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        lines.append(f"{stars}{each.name}: {kind_of(each.annotation)}{default}")
    returned = (
        ""
        if inspect.isclass(function)
        else f" -> {kind_of(inspect.signature(function).return_annotation)}"
    )
    body = "".join(f"    {line},\n" for line in lines)
    whole = f"{path}({', '.join(lines)}){returned}"
    text = whole if len(whole) < 100 else f"{path}(\n{body}){returned}"
    return f"<!-- not run: how it is called -->\n```python\n{text}\n```"


def kind_of(annotation: object) -> str:
    """A type as it is written where its name is imported."""
    text = (
        annotation.__qualname__
        if isinstance(annotation, type)
        else str(annotation).replace("'", "")
    )
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)


def spelled(default: object) -> str:
    """A default as it is written."""
    return json.dumps(default) if isinstance(default, str) else repr(default)


# Scores


def score_page() -> str:
    """Every score with its formula and source, and which readings have it."""
    parts = ["# Scores", NOTE]
    parts.append(
        "From token log-probabilities to one number per choice (axis `score`); the choice with the greatest number is"
        " the answer. S is log P(continuation | context) in nats. A score that an old run's protocols do not name is"
        " computed from what the run observed: `choicewise report --protocol P DIR`."
    )
    kinds = {
        "The log-likelihood, and per unit of length": SUMS,
        "Token by token": TOKENWISE,
        "Between the choices of an item": ACROSS,
        "Against the same text after a null context": CONDITIONAL,
    }
    for heading, names in kinds.items():
        rows = [
            (f"`{name}`", marked(" ".join(docstring_text(SCORES[name].function).split())))
            for name in names
        ]
        parts += [f"## {heading}", table([("score", "is"), *rows])]
    apart = {"`select`": SELECT, "`chain-of-thought`": OVER_CHAINS, "`along-thought`": ALONG}
    apart["`spellings`"] = OVER_SPELLINGS
    parts.append("## Of one reading alone")
    rows = [(reading, ", ".join(f"`{name}`" for name in names)) for reading, names in apart.items()]
    parts.append(table([("reading", "scores"), *rows]))
    parts.append("## Which reading has which")
    rows = [
        (f"`{name}`", marked(each.description), scores_of(each.scores))
        for name, each in READINGS.items()
    ]
    parts.append(table([("reading", "gives", "scores"), *rows]))
    parts.append("## What others call them")
    parts.append(
        "Accuracies by a score have other names elsewhere. They are understood wherever a score is named, after a"
        " protocol (`mmlu/cf:acc_norm`) or in `--score acc_norm`; a name that a protocol's own source uses"
        " otherwise goes before them. OLMES's two formulations are "
        + " and ".join(f"`FAMILY/{name}` (`FAMILY/{ours}`)" for name, ours in FORMULATIONS.items())
        + "."
    )
    rows = [
        (f"`{name}`", f"`{each.score}`", each.tool, each.description)
        for name, each in SCORE_NAMES.items()
    ]
    parts.append(table([("name", "is", "in", "decides by"), *rows]))
    parts.append(
        "See [Readings](../readings.md) for the ways of asking, and [Adding something](../design/adding.md) for a score"
        " of your own."
    )
    return "\n\n".join(parts) + "\n"


def scores_of(names: tuple[str, ...]) -> str:
    """The scores, by their groups where a reading has a whole group."""
    kinds = {
        "per unit of length": SUMS,
        "token by token": TOKENWISE,
        "between choices": ACROSS,
        "null context": CONDITIONAL,
    }
    whole = [kind for kind, group in kinds.items() if set(group) <= set(names)]
    rest = [name for name in names if not any(name in kinds[kind] for kind in whole)]
    return ", ".join([*whole, *(f"`{name}`" for name in rest)])


# Formats


def format_page() -> str:
    """What is read and written."""
    parts = [
        "# Formats",
        NOTE,
        "Every format of questions and of other tools' logs that is read, and of results that is written.",
    ]
    parts += [
        "## Questions",
        "`--data`: a folder in the original MMLU layout, or files that end in",
    ]
    parts[-1] += (
        f" {', '.join(f'`{suffix}`' for suffix in ROW_READERS)}: [your own data](../data.md)."
    )
    rows = [(f"`{reader.name}`", marked(reader.summary)) for reader in all_of(LogReader)]
    parts += ["## Logs of other tools", "`choicewise import`:", table([("`--from`", "is"), *rows])]
    rows = [(f"`{writer.name}`", marked(writer.summary)) for writer in all_of(Writer)]
    parts += ["## Results", "`choicewise export`:", table([("`--format`", "is for"), *rows])]
    return "\n\n".join(parts) + "\n"


# The catalogue


def families() -> dict[str, list[Entry]]:
    """The entries by benchmark or family, in alphabetical order."""
    made: dict[str, list[Entry]] = {}
    for each in entries():
        made.setdefault(each.name.partition("/")[0], []).append(each)
    return dict(sorted(made.items()))


def catalogue_page() -> str:
    """All families in one table, and the names that stand for several protocols."""
    inside = families()
    numbers = sum(len(each.protocols) for each in entries())
    parts = ["# Catalogue", NOTE]
    parts.append(
        f"{len(entries())} published ways of asking, which make {numbers} numbers. Each states its source at a commit,"
        " and its prompts are compared with what that source renders. `choicewise protocols` lists them,"
        " `choicewise protocols WORD` filters them, `choicewise protocols show NAME` shows a prompt of one"
        " (`--all`: every axis), `choicewise protocols diff P Q` what two differ in."
    )
    rows = [("name", "is", "ways of asking")]
    for family, members in inside.items():
        title = benchmarks()[family].title if family in benchmarks() else "for any data"
        names = ", ".join(
            f"[{each.name.partition('/')[2]}]({family}.md#{anchor(each.name)})" for each in members
        )
        rows.append((f"[`{family}`]({family}.md)", title, names))
    parts.append(table(rows))
    parts.append("## Names for several at once")
    rows = [("name", "stands for")]
    for name, members in groups().items():
        if "/" in name:
            rows.append((f"`{name}`", ", ".join(f"`{each.name}`" for each in members)))
    parts += ["A benchmark's or family's name stands for all its protocols. Besides:", table(rows)]
    parts.append(
        "[Suites](suites.md) are leaderboards: several benchmarks, each under its protocol, and their average."
    )
    return "\n\n".join(parts) + "\n"


def family_page(family: str, members: list[Entry]) -> str:
    """A benchmark and every entry about it."""
    parts = [f"# {family}", NOTE]
    if family in benchmarks():
        data = benchmarks()[family]
        parts += [
            f"**{escaped(data.title)}.** {text}" if place == 0 else text
            for place, text in enumerate(about(data.description))
        ]
        files = ", ".join(f"{split} `{path}`" for split, path in data.files.items())
        parts.append(
            f"- cite: {escaped(data.citation)}\n- rows: <{data.source}>, `{data.repository}` at `{data.revision}`\n"
            f"- files: {files}"
        )
    else:
        about_what = {
            protocol.benchmark for each in members for protocol in each.protocols.values()
        }
        data = (
            "any data"
            if about_what == {"any"}
            else f"the data of {' and '.join(sorted(about_what))}"
        )
        ways = ", ".join(each.name.partition("/")[2] for each in members)
        parts.append(
            f"{'One way' if len(members) == 1 else f'{len(members)} ways'} of asking, for {data}: {ways}."
        )
    for each in members:
        parts += entry_parts(each)
    return "\n\n".join(parts) + "\n"


def entry_parts(each: Entry) -> Iterator[str]:
    """One entry: what it does, whom to cite, its source, and the signature of each of its numbers."""
    yield f"## {each.name}"
    yield f"*{escaped(each.title)}*"
    yield from about(each.description)
    facts = [f"- cite: {escaped(each.citation)}", f"- source: <{each.source}>"]
    several = len(each.protocols) > 1
    facts += [f"- `{alias}` is `{meant}`" for alias, meant in each.published.items() if several]
    yield "\n".join(facts)
    (_, headline), *others = each.protocols.items()
    rows = [("number", "differs from the first in")]
    for name, protocol in each.protocols.items():
        differs = [
            f"{axis} {code(after)}" for axis, _, after in axis_differences(headline, protocol)
        ]
        rows.append((f"`{name}`", ", ".join(differs)))
    if others:
        yield table(rows)
    lines = [f"{name}\n  {signature(protocol)}" for name, protocol in each.protocols.items()]
    yield "<!-- not run: signatures -->\n```text\n" + "\n".join(lines) + "\n```"


def suite_page() -> str:
    """The suites with their parts."""
    parts = ["# Suites", NOTE]
    parts.append(
        "Several benchmarks, each under its protocol, and their average: [how it is made](../design/suites.md)."
    )
    for name in suite_names():
        each = suite(name)
        parts += [f"## {each.name}", f"*{escaped(each.title)}*", *about(each.description)]
        parts.append(
            f"- cite: {escaped(each.citation)}\n- source: <{each.source}>\n- average: {each.average}"
            + ", each from guessing (0) to all right (1)" * each.normalised
        )
        rows = [("benchmark", "shots", "metric", "protocol")]
        for part in each.parts:
            if part.unscored:
                rows.append(
                    (
                        f"`{part.benchmark}`",
                        "",
                        "",
                        f"can't be scored here: {escaped(part.unscored)}",
                    )
                )
            rows += [
                (
                    f"`{part.benchmark}`",
                    str(recipe.shots),
                    f"{recipe.metric} ({recipe.aggregation})",
                    f"`{protocol}`",
                )
                for protocol, recipe in part.protocols.items()
            ]
        parts.append(table(rows))
    return "\n\n".join(parts) + "\n"


# The notebook


def notebook_pages() -> dict[str, str]:
    """The notebook as a page, and its charts."""
    place = DOCS / "notebook.ipynb"
    if not place.is_file():
        return {}
    same = "[the same as a notebook](notebook.ipynb), with its outputs"
    parts, made = [NOTE, f"*Choicewise from Python: numbers, tables, charts ({same}).*"], {}
    for number, cell in enumerate(json.loads(place.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"<!-- not run: the notebook is -->\n```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                name = f"pictures/notebook-{number}.svg"
                made[name] = "".join(data["image/svg+xml"])
                words = "".join(data["text/plain"])
                parts.append(f"![{words.strip('<>')}]({name})")
            else:
                text = "".join(output.get("text", data.get("text/plain", ""))).rstrip("\n")
                parts.append(f"<!-- not run: what it prints -->\n```text\n{text}\n```")
    first = parts.pop(2)
    title, _, rest = first.partition("\n")
    return {
        "notebook.md": "\n\n".join([title, *parts[:2], rest.strip(), *parts[2:]]) + "\n",
        **made,
    }


# The navigation


def site_text() -> str:
    """The configuration of the site with every family of the catalogue in its navigation."""
    lines = [
        '    { "Catalogue" = [',
        '      "catalogue/index.md",',
        '      { "Suites" = "catalogue/suites.md" },',
    ]
    lines += [f'      {{ "{family}" = "catalogue/{family}.md" }},' for family in families()]
    old = SITE.read_text(encoding="utf-8")
    return re.sub(
        r'    \{ "Catalogue" = .*?\n(?=    \{ )',
        "\n".join([*lines, "    ] },\n"]),
        old,
        count=1,
        flags=re.DOTALL,
    )


def llms_text(made: Mapping[Path, str]) -> str:
    """Every page in the order of the navigation, a line each: its title, its file, and how it begins."""
    site = tomllib.loads(made[SITE])["project"]
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}"]
    for entry in site["nav"]:
        ((name, inside),) = entry.items()
        if isinstance(inside, list):
            lines += ["", f"## {name}", ""]
        for page in listed(inside):
            text = (
                made[DOCS / page]
                if DOCS / page in made
                else (DOCS / page).read_text(encoding="utf-8")
            )
            title = re.search(r"^# (.*)$", text, re.MULTILINE)
            assert title is not None, page
            lines += [""] * (lines[-1].startswith(">"))
            lines.append(f"- [{title[1].replace('`', '')}]({page}){begins(text)}")
    return "\n".join(lines) + "\n"


def listed(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    for part in (
        entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ()
    ):
        yield from listed(part)


def begins(text: str) -> str:
    """The first sentence of a page, behind a colon; nothing where it does not begin with one."""
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = [plain(part) for part in re.split(r"\n\s*\n", prose)[1:]]
    first = next((part for part in parts if re.match(r"[\w*\"`\[]", part)), "")
    sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first).replace("*", "")
    short = re.split(r"(?<=[.?])\s(?=[A-Z`\d])", sentence)[0].removesuffix(":")
    return f": {short}" if short else ""


# Text


def table(rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; the first row is its header."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row] for row in rows]
    head, *body = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each on a line, lists kept."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return [" ".join(part.split()) for part in parts]


def first_line(text: str) -> str:
    """The first paragraph of a docstring."""
    return paragraphs(text)[0]


def docstring_text(thing: Any) -> str:
    """The docstring of a function, or of the one that a partial call is about."""
    return inspect.getdoc(getattr(thing, "func", thing)) or ""


def docstring(thing: Any) -> str:
    """A docstring as Markdown; a list of parameters has their types and defaults."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(docstring_text(thing))):
        if part.startswith("- "):
            parts.append(parameter_list(part, inspect.signature(thing).parameters))
        else:
            parts.append(marked(plain(part)))
    return "\n\n".join(parts)


def parameter_list(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """A list of a docstring, with the type and the default of the parameter that an item begins with."""
    lines = []
    for item in re.split(r"(?m)^- ", text)[1:]:
        name, colon, meaning = plain(item).partition("``: ")
        parameter = parameters.get(name.removeprefix("``"))
        line = marked(plain(item))
        if colon and parameter is not None:
            facts = f"`{kind_of(parameter.annotation)}`"
            if parameter.default is not parameter.empty:
                facts += f", default `{spelled(parameter.default)}`"
            line = f"`{parameter.name}` ({facts}): {marked(meaning)}"
        lines.append(f"- {line}")
    return "\n".join(lines)


def plain(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def marked(text: str) -> str:
    """A docstring's text as Markdown: its roles and double backticks become code, all else is escaped."""
    pieces = re.split(r"(:\w+:`[^`]+`|``[^`]+``|`[^`]+`)", text)
    return "".join(
        code(re.sub(r"^:\w+:|`|~", "", piece)) if place % 2 else escaped(piece)
        for place, piece in enumerate(pieces)
    )


def code(text: object) -> str:
    """A text as code, in whatever backticks it needs."""
    shown = (
        str(text).rpartition("choicewise.")[2] if str(text).startswith("choicewise.") else str(text)
    )
    shown = shown or '""'
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def escaped(text: str) -> str:
    """A plain text as Markdown that shows it as it stands."""
    return re.sub(
        r"(?<![\w/])_(?=\w)|(?<=\w)_(?![\w/])|[\\`*<>\[\]|{}#]", lambda match: "\\" + match[0], text
    )


def about(text: str) -> list[str]:
    """The paragraphs of an entry's text."""
    return [marked(part) for part in text.strip().split("\n") if part]


def anchor(heading: str) -> str:
    """The id that the site gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = pages()
    other = [
        file
        for file, text in made.items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]
    stale = [
        file
        for file in DOCS.rglob("*.md")
        if file not in made and NOTE in file.read_text(encoding="utf-8")
    ]
    for file in [*other, *stale]:
        print(file.relative_to(DOCS.parent))
    if check:
        return int(bool(other or stale))
    for file in stale:
        file.unlink()
    for file in other:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made[file], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
