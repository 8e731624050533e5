"""What a command prints first: the finding, families for many rows, and an item's choices side by side."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import RenderableType

from choicewise import evaluate
from choicewise.cli.listing import COMMANDS
from choicewise.errors import UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.report.explain import cut, decision_lines, explanation_parts, folded, texts, together
from choicewise.report.findings import sentences
from choicewise.report.tables import IN_SHORT, LONG, _Plain, family_tables, long, warning_counts
from choicewise.results.explain import ItemDecision, explain
from choicewise.results.finding import finding
from choicewise.results.outcomes import ranked
from choicewise.results.rows import WARNINGS
from choicewise.results.run import Run, open_run
from choicewise.util.text import short
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made

HOSTILE = "m\x1b]0;owned\x07\x1b[2J\u202e\n\u2028error: " + "x" * 10_000
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models under all protocols of the catalogue."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data")
    for name in ("hash", "oracle"):
        evaluate(model=f"fake:{name}", data=data, protocols=["mmlu"], out=folder / name)
    return [folder / "hash", folder / "oracle"]


@pytest.fixture(scope="module")
def run(runs: list[Path]) -> Run:
    return open_run(runs[0])


def shown(*words: object) -> str:
    return choicewise(*words, code=0).stdout


def printed(parts: Sequence[RenderableType], width: int) -> list[str]:
    out = StringIO()
    console = _Plain(file=out, width=width, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def number(score: float) -> str:
    return f"{score:.4f}" if abs(score) < 100 else f"{score:.2f}"


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.costly("whole commands")
def test_a_report_begins_with_its_finding(runs: list[Path], run: Run) -> None:
    told = " ".join(sentences(finding(run.rows())))
    for more in ([], ["--all"], ["--protocol", "mmlu/cloze"]):
        told_now = unwrapped(shown("report", runs[0], *more))
        chosen = " ".join(sentences(finding(run.choose(["mmlu/cloze"]).rows()))) if "--protocol" in more else told
        assert told_now.startswith(chosen)
    assert not unwrapped(shown("report", runs[0], "--json")).startswith(told[:9])
    assert shown("report", runs[0], "--multiverse").startswith("accuracy in %")


@pytest.mark.costly("whole commands")
def test_many_rows_are_shown_by_family_and_all_of_them_on_request(runs: list[Path], run: Run) -> None:
    in_short, whole = shown("report", runs[0]), shown("report", runs[0], "--all")
    rows = run.rows()
    for family in {row.family for row in rows}:
        values = [row.value for row in rows if row.family == family]
        low, high = f"{100 * min(values):.1f}", f"{100 * max(values):.1f}"
        cells = low if low == high else f"{low} – {high}"
        assert re.search(rf"^{family} +{cells} .* {len(values)} +\d+ *$", in_short, re.MULTILINE)
    assert re.search(r"^all together +.* 49 +\d+ *$", in_short, re.MULTILINE)
    assert "fake:hash #R" in in_short
    assert " #D" in in_short
    assert rows[0].id not in in_short
    assert "with --all" in in_short
    for row in rows:
        assert row.id in whole
        assert f"{row.protocol} " in whole
        for flag in row.diagnosis.warnings:
            assert f"{flag}: {WARNINGS[flag]}" in whole
    assert "with --all" not in whole
    assert len(in_short.splitlines()) < 25


@pytest.mark.costly("whole commands")
def test_what_to_do_next_is_told_where_rows_are_left_out(runs: list[Path]) -> None:
    one, both, few = (choicewise("report", *words) for words in (runs[:1], runs, [runs[0], "--protocol", "mmlu/cloze"]))
    rows = open_run(runs[0]).rows()
    lowest, highest = (pick(rows, key=lambda row: row.value).protocol for pick in (min, max))
    commands = re.findall("`choicewise (.*)`", one.stderr)
    assert commands[0] == f"ladder {lowest} {highest} {runs[0]}"
    assert commands[1].startswith(f"page {runs[0]} --out ")
    assert [line.split()[0] for line in re.findall("`choicewise (.*)`", both.stderr)] == ["page"]
    assert "`" not in few.stderr
    for line in commands:
        assert line.split()[0] in COMMANDS
    assert choicewise(*commands[0].split())


def test_few_rows_are_shown_as_they_are(runs: list[Path]) -> None:
    short, whole = (shown("report", runs[0], "--protocol", "mmlu/cloze", *more) for more in ([], ["--all"]))
    assert short == whole
    assert "mmlu/cloze:sum" in short


def test_the_json_has_every_row(runs: list[Path]) -> None:
    assert len(json.loads(shown("report", *runs, "--json"))) == 2 * 49


@pytest.mark.parametrize("words", [["report", "--all", "--json"], ["report", "--all", "--multiverse"]])
def test_all_is_refused_where_it_does_nothing(words: list[str], runs: list[Path]) -> None:
    told = choicewise(*words, str(runs[0]))
    assert told.code == UsageError.exit_code
    assert "no use for --all" in told.stderr


def test_tokens_are_refused_beside_json(runs: list[Path]) -> None:
    told = choicewise("explain", str(runs[0]), "--item", "tides/test/0", "--tokens", "--json")
    assert told.code == UsageError.exit_code
    assert "no use for --tokens" in told.stderr


@pytest.mark.costly("whole commands")
def test_a_run_prints_the_same_as_its_report(tmp_path: Path) -> None:
    line = ["run", "--model", "fake:hash", "--data", str(write_mmlu(tmp_path / "data")), "--protocol", "mmlu"]
    line += ["--out", str(tmp_path / "run")]
    for more in ([], ["--all"]):
        assert shown(*line, *more) == shown("report", tmp_path / "run", *more)


@pytest.mark.costly("whole commands")
def test_several_models_stand_side_by_side_with_their_ranks(runs: list[Path]) -> None:
    rows = ranked([row for folder in runs for row in open_run(folder).rows()])
    lines = printed(family_tables(rows, 120), 120)
    for title in ("range in % within a family", "ranks within a family"):
        assert sum(title in line for line in lines) == 1
    (letters, ranks) = [line.split() for line in lines if re.match("letters  ", line)]
    values = [row.value for row in rows if row.family == "letters" and row.model == "fake:hash"]
    assert letters[1:4] == [f"{100 * min(values):.1f}", "–", f"{100 * max(values):.1f}"]
    assert letters[4:] == ["100.0"]
    assert ranks[1:] == ["2", "1"]
    (first,) = [line for line in lines if line.startswith("first, or tied for it")]
    assert first.split()[-6:] == ["0", "of", "49", "49", "of", "49"]


def test_many_models_stand_one_below_the_other() -> None:
    rows = ranked([made(name, 0.3 + m / 100, f"model-{m}") for name in NAMES[:25] for m in range(9)])
    lines = printed(family_tables(rows, 80), 80)
    assert sum(line.startswith("model-8 ") for line in lines) >= 2
    assert max(map(len, lines)) <= 80


def test_datasets_and_parts_of_them_are_shown_apart() -> None:
    rows = [made(name, 0.5) for name in NAMES[:25]]
    rows += [replace(row, dataset="shoals", data="#D2") for row in rows]
    lines = printed(family_tables(rows, 80), 80)
    assert [line for line in lines if line.startswith("model #R123456 on")] == [
        "model #R123456 on isles #D123456, 100 items, 25 numbers",
        "model #R123456 on shoals #D2, 100 items, 25 numbers",
    ]


def test_groups_have_a_line_each() -> None:
    rows = [made(name, 0.5, subject=subject, n=n) for name in NAMES[:3] for n, subject in enumerate("abcdefgh", 1)]
    assert long(rows)
    (shown,) = family_tables(rows, 80)
    lines = printed([shown], 80)
    assert lines[0] == "model #R123456 on isles #D123456, 1 to 8 items a group, 24 numbers"
    assert [line.split()[0] for line in lines[2:]] == [*"abcdefgh", "all"]
    assert not long([made(subject=str(n)) for n in range(2 * LONG)])  # nothing to put together


def test_what_is_long() -> None:
    assert not long([made(name) for name in NAMES[:LONG]])
    assert long([made(name) for name in NAMES[: LONG + 1]])
    assert long([made(name, model=f"m{m}") for name in NAMES[:15] for m in range(8)])


def test_numbers_that_are_not_there_have_a_dash() -> None:
    rows = [made(name, math.nan) for name in NAMES[:30]]
    lines = printed(family_tables(rows, 80), 80)
    assert all(line.split()[-4:-2] == ["-", "-"] for line in lines[2:])
    assert "nan" not in "".join(lines)


def test_warnings_are_counted_by_protocol() -> None:
    rows = [made(NAMES[0], warnings=("position", "length"), missing=3), made(NAMES[1], warnings=("position",))]
    rows += [replace(row, model="other") for row in rows]
    assert (
        warning_counts(rows)
        == "some positions are predicted too often (2), scores follow length (1), items are missing (1)"
    )
    assert warning_counts([made()]) == ""
    assert set(WARNINGS) - set(IN_SHORT) == {"chance"}  # counted as no better than guessing
    for name in IN_SHORT:
        row = made(warnings=(name,)) if name in WARNINGS else made(**{name: ("field",) if name == "unused" else 2})
        assert warning_counts([row]) == f"{IN_SHORT[name]} (1)"


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_hostile_names_break_no_line(width: int) -> None:
    rows = ranked(
        [made(name, 0.5, model, dataset=HOSTILE) for name in NAMES[:25] for model in (HOSTILE, "b" + HOSTILE)]
    )
    for shown in (rows, rows[::2]):
        lines = printed([" ".join(sentences(finding(shown))), *family_tables(shown, width)], width)
        assert not OBEYED.search("\n".join(lines))
        assert max(map(cell_len, lines)) <= width


def test_alarms_stay_on_stderr(tmp_path: Path) -> None:
    lines = [{"id": f"q{n}", "question": "?", "choices": ["a", "a"], "answer": 0} for n in range(30)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    evaluate(model="fake:hash", data=tmp_path / "test.jsonl", protocols={"p": recipe}, out=tmp_path / "run")
    told = choicewise("report", str(tmp_path / "run"))
    assert "warning: gold-constant, " in told.stderr
    assert "warning: " not in told.stdout


@pytest.mark.parametrize("width", [80, 120])
def test_an_item_fits_into_two_screens(run: Run, width: int) -> None:
    told = explain(run, "tides/test/0")
    lines = printed(explanation_parts(told, width), width)
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 105
    text = unwrapped("\n".join(lines))
    for each in told.decided:
        for index, score in enumerate(each.scores or ()):
            assert (f"[{number(score)}]" if index == each.prediction else number(score)) in text
    for index, choice in enumerate(told.choices):
        assert f"{'* ' if index in told.gold else ''}{index} {choice}" in text
    assert "0 shots, 3 lines" in text


def test_an_item_says_how_many_protocols_choose_what(run: Run) -> None:
    told = explain(run, "tides/test/0")
    lines = list(decision_lines(told.decided))
    counts: dict[int, int] = {}
    for each in told.decided:
        counts[each.prediction] = counts.get(each.prediction, 0) + 1
    shown = [re.match(r"(\d+) of 49 protocols? chooses? (\S+) \((right|wrong)\): ", line) for line in lines]
    assert {int(line[2]) if line[2] != "nothing" else -1: int(line[1]) for line in shown if line} == counts
    assert all((int(line[2]) in told.gold) == (line[3] == "right") for line in shown if line and line[2] != "nothing")


def decision(protocol: str, prediction: int = 0, **changed: object) -> ItemDecision:
    content = {"score": "sum", "calibration": "none", "scores": None, "credit": 1.0, "margin": 1.0}
    return ItemDecision(protocol, prediction=prediction, **{**content, "tied": False, "near_tie": False, **changed})


def test_protocols_that_decide_alike_are_put_together() -> None:
    decided = [decision(f"a:{n}") for n in "xyz"] + [decision("b:x"), decision("b:y", 1, credit=0.0), decision("c")]
    decided += [decision("d:x"), decision("d:y"), decision("d:z", -1, credit=math.nan), decision("e", tied=True)]
    decided += [decision("f", 2, credit=0.25, near_tie=True)]
    assert list(decision_lines(decided)) == [
        "8 of 11 protocols choose 0 (right): a (all 3), b:x, c, d (all but z), e",
        "1 of 11 protocols chooses 1 (wrong): b:y",
        "1 of 11 protocols chooses nothing (missing): d:z",
        "1 of 11 protocols chooses 2 (credit 0.250): f",
        "exact ties: e",
        "within the numeric noise: f",
    ]
    assert together(["a:x"]) == "a:x"
    assert together(["a:x", "a:y"]) == "a (2 protocols)"
    assert together(["a:x", "b", "c"]) == "a:x and 2 others"


def test_prompts_after_which_the_same_is_scored_share_a_table(run: Run) -> None:
    told = explain(run, "tides/test/0")
    letters = [each for each in told.asked if each.protocols in (("mmlu/olmes-mcf",), ("mmlu/harness-v1",))]
    assert texts(letters[0]) == texts(letters[1])
    lines = printed(explanation_parts(told, 80), 80)
    rows = [line for line in lines if re.match("  mmlu/(olmes-mcf|harness-v1): S=sum ", line)]
    assert len(rows) == 2
    assert abs(lines.index(rows[0]) - lines.index(rows[1])) < 5


def test_whatever_a_reading_asks_is_explained_in_short(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("trees",), questions=1)
    names = ["options/yes-no", "options/embedding", "options/rating", "options/noisy-channel", "mmlu/helm"]
    found = explain(evaluate(model="fake:hash", data=data, protocols=names, out=tmp_path / "run"), "trees/test/0")
    text = unwrapped("\n".join(printed(explanation_parts(found, 100), 100)))
    assert "(the first prompt of several)" in text
    assert "S, part 0" in text
    assert "generated " in text
    assert text.count("observed") == 1
    for each in found.decided:
        assert all(number(score) in text for score in each.scores or ())


def test_an_item_with_many_choices_is_shown_in_parts(tmp_path: Path) -> None:
    line = {"id": "q", "question": "Which?", "choices": [f"the number {n}" for n in range(20)], "answer": 17}
    (tmp_path / "test.jsonl").write_text(json.dumps(line))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    run = evaluate(model="fake:hash", data=tmp_path / "test.jsonl", protocols={"p": recipe}, out=tmp_path / "run")
    told = explain(run, "q")
    lines = printed(explanation_parts(told, 80), 80)
    assert max(map(cell_len, lines)) <= 80
    heads = [line for line in lines if line.startswith("  choice ")]
    assert [word for line in heads for word in line.replace(" *", "").split()[1:]] == [str(n) for n in range(20)]
    assert "17 *" in "".join(heads)
    assert all(number(score) in "".join(lines) for score in told.decided[0].scores or ())


def test_an_item_that_could_not_be_asked_says_why_in_short(tmp_path: Path) -> None:
    from choicewise.models.fake import HashModel

    model = HashModel()
    model.window = 120
    data = write_mmlu(tmp_path / "data", ("tides",), questions=1)
    run = evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    text = unwrapped("\n".join(printed(explanation_parts(explain(run, "tides/test/0"), 80), 80)))
    assert "not asked: too long" in text
    assert "1 of 1 protocol chooses nothing (missing): mmlu/original" in text


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_hostile_item_breaks_no_line(tmp_path: Path, width: int) -> None:
    item = "q" + HOSTILE[:40]
    line = {"id": item, "question": HOSTILE, "choices": [HOSTILE, "漢字" * 2000], "answer": 0, "subject": HOSTILE}
    (tmp_path / "test.jsonl").write_text(json.dumps(line))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    protocols = {HOSTILE: recipe, HOSTILE + ":b": replace(recipe, score="char_mean")}
    run = evaluate(model="fake:hash", data=tmp_path / "test.jsonl", protocols=protocols, out=tmp_path / "run")
    lines = printed(explanation_parts(explain(run, item), width), width)
    assert not OBEYED.search("\n".join(lines))
    assert max(map(cell_len, lines)) <= width
    assert len(lines) < 80


@given(st.text(), st.integers(1, 12), st.integers(30, 120))
def test_folding_keeps_the_beginning_and_the_end(text: str, lines: int, width: int) -> None:
    shown = folded(text, lines, width)
    assert 1 <= len(shown) <= max(1, lines)
    assert all(len(line) <= width for line in shown)
    assert all("\n" not in line for line in shown)


def test_what_is_folded_is_counted() -> None:
    text = "\n".join(f"line {n}" for n in range(10))
    assert folded(text, 4, 40) == ["line 0⏎", "… 7 lines, 49 characters …", "line 8⏎", "line 9"]
    assert folded(text, 1, 20) == ["…7⏎line 8⏎line 9"[-20:]] or folded(text, 1, 20)[0].endswith("line 9")
    assert folded("a\nb", 4, 40) == ["a⏎", "b"]
    assert cut("x" * 100, 40) == f"{'x' * 11} … 60 characters … {'x' * 10}"


@given(st.text(), st.integers(5, 50))
def test_short_names_are_short(text: str, most: int) -> None:
    assert len(short(text, most)) <= most
    assert not OBEYED.search(short(text, most))


def test_the_title_counts_the_numbers_that_are_there() -> None:
    rows = [made(NAMES[0], math.nan), *(made(name, 0.5) for name in NAMES[1:])]
    lines = printed(family_tables(rows, 120), 120)
    assert f"model #R123456 on isles #D123456, 100 items, {len(NAMES) - 1} numbers" in lines
