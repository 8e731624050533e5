"""What a report shows: the finding, families for many rows, every number on request; an item's choices side by side."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from choicewise import evaluate
from choicewise.extensions.explain.item_report import (
    cut,
    decision_lines,
    explanation_parts,
    folded,
    texts,
    together,
)
from choicewise.protocols.catalogue import resolve
from choicewise.report.brief import LINES, first_lines, headlines, height, warning_lines
from choicewise.report.findings import sentences
from choicewise.report.tables import IN_SHORT, LONG, family_tables, long
from choicewise.results.explain import ItemDecision, explain
from choicewise.results.finding import finding
from choicewise.results.number import SERIOUS, WARNINGS
from choicewise.results.outcomes import ranked
from choicewise.results.run import Run
from choicewise.util.text import short
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.printed import printed
from tests.helpers.rows import NAMES, altered, made
from tests.helpers.study import Study

HOSTILE = "m\x1b]0;owned\x07\x1b[2J\u202e\n\u2028error: " + "x" * 4_000
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
ASKED = [
    "mmlu/cloze",
    "mmlu/letter-text",
    "mmlu/original",
    "mmlu/harness-v1",
    "mmlu/olmes-mcf",
    "mmlu/helm",
]
"""24 numbers of four families."""


@pytest.fixture(scope="module")
def run(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(
        model="fake:hash", data=study.data, protocols=ASKED, out=tmp_path_factory.mktemp("run")
    )


def number(score: float) -> str:
    return f"{score:.4f}" if abs(score) < 100 else f"{score:.2f}"


def unwrapped(*lines: str) -> str:
    return " ".join(" ".join(lines).split())


def one_question(folder: Path, names: tuple[str, ...] = ("p",), **line: object) -> Run:
    """A run on one question of any number of choices, under a protocol that is called by each of ``names``."""
    (folder / "test.jsonl").write_text(json.dumps({"question": "Which?", **line}))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    recipes = {
        name: replace(recipe, score=score)
        for name, score in zip(names, ("sum", "char_mean"), strict=False)
    }
    return evaluate(
        model="fake:hash", data=folder / "test.jsonl", protocols=recipes, out=folder / "run"
    )


@pytest.mark.costly("six reports")
def test_every_row_is_shown_on_request_and_ids_where_they_are_asked_for(study: Study) -> None:
    rows = study.runs[0].rows()
    in_short, whole, ids = (
        choicewise("report", study.hash, *more, code=0) for more in ([], ["--all"], ["--ids"])
    )
    most = LINES - height(in_short.stderr.splitlines())
    assert in_short.stdout.splitlines() == first_lines(rows, most=most)
    for each in (whole, ids):
        assert unwrapped(each.stdout).startswith(" ".join(sentences(finding(rows))))
        assert {row.identity.protocol for row in rows} <= set(each.stdout.split())
        assert "choicewise" not in each.stderr
        for flag in {flag for row in rows for flag in row.diagnosis.warnings}:
            assert f"{flag}: {WARNINGS[flag]}" in unwrapped(each.stdout)
    assert "#" not in whole.stdout
    assert {row.identity.id for row in rows} <= set(ids.stdout.split())
    ends = [row.identity.protocol for row in headlines(rows)]
    report, page, ladder = printed_commands(in_short.stderr)
    assert report == ["report", str(study.hash), "--all"]
    assert page[:3] == ["page", str(study.hash), "--out"]
    assert ladder == ["ladder", *ends, str(study.hash)]
    choicewise(*ladder, code=0)
    both = choicewise("report", study.hash, study.oracle, code=0).stderr
    assert [words[0] for words in printed_commands(both)] == ["report", "page"]
    assert len(
        json.loads(choicewise("report", study.hash, study.oracle, "--json").stdout)
    ) == 2 * len(rows)


def printed_commands(told: str) -> list[list[str]]:
    return [
        line.split() for line in re.findall(r"  choicewise (.*?)(?=  \||$)", told, re.MULTILINE)
    ]


@pytest.mark.costly("two runs and two reports of many numbers")
def test_a_run_prints_the_same_as_its_report(tmp_path: Path) -> None:
    data, words = (
        write_mmlu(tmp_path / "data", questions=1),
        [word for name in ASKED for word in ("--protocol", name)],
    )
    line = ["run", "--model", "fake:hash", "--data", data, *words, "--out", tmp_path / "run"]
    for more in ([], ["--all"]):
        assert (
            choicewise(*line, *more, code=0).stdout
            == choicewise("report", tmp_path / "run", *more).stdout
        )


def test_several_models_stand_side_by_side_with_their_ranks(study: Study) -> None:
    rows = ranked([row for run in study.runs[:2] for row in run.rows()])
    lines = printed(*family_tables(rows), width=120)
    (shares, ranks) = [line.split() for line in lines if line.startswith("cloze  ")]
    values = [
        row.value
        for row in rows
        if row.identity.family == "cloze" and row.identity.model == "fake:hash"
    ]
    assert shares[1:] == [f"{100 * min(values):.1f}", "–", f"{100 * max(values):.1f}", "100.0"]
    assert ranks[1:] == ["2", "1"]
    (first,) = [line for line in lines if line.startswith("first, or tied for it")]
    assert first.split()[-6:] == ["0", "of", "21", "21", "of", "21"]


PARTS = [made(name) for name in NAMES[:25]]
TABLES = {
    "many models one below the other": ranked(
        [made(name, 0.3 + m / 100, f"model-{m}") for name in NAMES[:25] for m in range(9)]
    ),
    "datasets apart": PARTS + [altered(row, dataset="shoals", data="#D2") for row in PARTS],
    "groups": [
        made(name, subject=subject, n=n)
        for name in NAMES[:3]
        for n, subject in enumerate("abcdefgh", 1)
    ],
    "no numbers": [made(name, math.nan) for name in NAMES[:30]],
    "one number that is not there": [made(NAMES[0], math.nan), *PARTS[1:]],
}


@pytest.mark.parametrize("name", TABLES)
def test_families_and_groups_in_a_table(name: str, snapshot: SnapshotAssertion) -> None:
    assert long(TABLES[name])
    lines = printed(*family_tables(TABLES[name]))
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) == snapshot


def test_what_is_long() -> None:
    assert [long([made(name) for name in NAMES[:count]]) for count in (LONG, LONG + 1)] == [
        False,
        True,
    ]
    assert not long([made(subject=str(n)) for n in range(2 * LONG)])  # nothing to put together
    assert long([made(name, model=f"m{m}") for name in NAMES[:15] for m in range(8)])


def test_every_warning_is_told_in_a_few_words_unless_another_line_tells_it() -> None:
    assert set(WARNINGS) - set(IN_SHORT) == {"chance"}  # counted as no better than guessing
    for name in IN_SHORT:
        row = (
            made(warnings=(name,))
            if name in WARNINGS
            else made(**{name: ("field",) if name == "unused" else 2})
        )
        title = "alarms" if name in SERIOUS else "warnings"
        told = [] if name in ("missing", "ties") else [f"{title}: {IN_SHORT[name]} (1 of 1)"]
        assert warning_lines([row]) == told
    assert len(warning_lines([made(warnings=("many-unparsed",), invalid=2)])) == 1


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_hostile_names_break_no_line(width: int) -> None:
    models = HOSTILE, "b" + HOSTILE
    rows = ranked(
        [made(name, 0.5, model, dataset=HOSTILE) for name in NAMES[:25] for model in models]
    )
    for shown in (rows, rows[::2]):
        lines = printed(" ".join(sentences(finding(shown))), *family_tables(shown), width=width)
        assert not OBEYED.search("\n".join(lines))
        assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_an_item_fits_into_two_screens(run: Run, width: int) -> None:
    told = explain(run, "tides/test/0")
    lines = printed(*explanation_parts(told, width), width=width)
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 105
    text = unwrapped(*lines)
    for each in told.decided:
        for index, score in enumerate(each.scores or ()):
            assert (f"[{number(score)}]" if index == each.prediction else number(score)) in text
    for index, choice in enumerate(told.choices):
        assert f"{'* ' if index in told.gold else ''}{index} {choice}" in text
    assert "0 shots, 3 lines" in text
    letters = [
        each for each in told.asked if each.protocols in (("mmlu/olmes-mcf",), ("mmlu/harness-v1",))
    ]
    assert texts(letters[0]) == texts(letters[1])
    places = [
        n for n, line in enumerate(lines) if re.match("  mmlu/(olmes-mcf|harness-v1): S=sum ", line)
    ]
    assert len(places) == 2
    assert places[1] - places[0] < 5, "prompts after which the same is scored share a table"


def test_an_item_says_how_many_protocols_choose_what(run: Run) -> None:
    told = explain(run, "tides/test/0")
    pattern = re.compile(r"(\d+) of 24 protocols? chooses? (\S+) \((right|wrong)\): ")
    shown = [found.groups() for found in map(pattern.match, decision_lines(told.decided)) if found]
    counts = Counter(each.prediction for each in told.decided)
    assert {
        int(choice) if choice != "nothing" else -1: int(count) for count, choice, _ in shown
    } == counts
    assert all(
        (int(choice) in told.gold) == (how == "right")
        for _, choice, how in shown
        if choice != "nothing"
    )


def decision(protocol: str, prediction: int = 0, **changed: object) -> ItemDecision:
    content = {"score": "sum", "calibration": "none", "scores": None, "credit": 1.0, "margin": 1.0}
    return ItemDecision(
        protocol=protocol,
        prediction=prediction,
        **{**content, "tied": False, "near_tie": False, **changed},
    )


def test_protocols_that_decide_alike_are_put_together() -> None:
    decided = [decision(f"a:{n}") for n in "xyz"] + [
        decision("b:x"),
        decision("b:y", 1, credit=0.0),
        decision("c"),
    ]
    decided += [
        decision("d:x"),
        decision("d:y"),
        decision("d:z", -1, credit=math.nan),
        decision("e", tied=True),
    ]
    decided += [decision("f", 2, credit=0.25, near_tie=True)]
    assert list(decision_lines(decided)) == [
        "8 of 11 protocols choose 0 (right): a (all 3), b:x, c, d (all but z), e",
        "1 of 11 protocols chooses 1 (wrong): b:y",
        "1 of 11 protocols chooses nothing (missing): d:z",
        "1 of 11 protocols chooses 2 (credit 0.250): f",
        "exact ties: e",
        Gist("numeric noise: f"),
    ]
    assert together(["a:x"]) == "a:x"
    assert together(["a:x", "a:y"]) == "a (2 protocols)"
    assert together(["a:x", "b", "c"]) == "a:x and 2 others"


def test_whatever_a_reading_asks_is_explained_in_short(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("trees",), questions=1)
    names = [
        "options/yes-no",
        "options/embedding",
        "options/rating",
        "options/noisy-channel",
        "mmlu/helm",
    ]
    found = explain(
        evaluate(model="fake:hash", data=data, protocols=names, out=tmp_path / "run"),
        "trees/test/0",
    )
    text = unwrapped(*printed(*explanation_parts(found, 100), width=100))
    assert "(first of several prompts)" in text
    assert "S, part 0" in text
    assert "generated " in text
    assert text.count("observed") == 1
    for each in found.decided:
        assert all(number(score) in text for score in each.scores or ())


def test_an_item_with_many_choices_is_shown_in_parts(tmp_path: Path) -> None:
    choices = [f"the number {n}" for n in range(20)]
    told = explain(one_question(tmp_path, id="q", choices=choices, answer=17), "q")
    lines = printed(*explanation_parts(told, 80), width=80)
    assert max(map(cell_len, lines)) <= 80
    heads = [line for line in lines if line.startswith("  choice ")]
    assert [word for line in heads for word in line.replace(" *", "").split()[1:]] == [
        str(n) for n in range(20)
    ]
    assert "17 *" in "".join(heads)
    assert all(number(score) in "".join(lines) for score in told.decided[0].scores or ())


def test_a_hostile_item_breaks_no_line(tmp_path: Path) -> None:
    line = {
        "question": HOSTILE,
        "choices": [HOSTILE, "漢字" * 800],
        "answer": 0,
        "subject": HOSTILE,
    }
    run = one_question(tmp_path, (HOSTILE, f"{HOSTILE}:b"), id=f"q{HOSTILE[:40]}", **line)
    told = explain(run, f"q{HOSTILE[:40]}")
    for width in (40, 80, 160):
        lines = printed(*explanation_parts(told, width), width=width)
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
    assert folded(text, 1, 20) == ["…7⏎line 8⏎line 9"[-20:]] or folded(text, 1, 20)[0].endswith(
        "line 9"
    )
    assert folded("a\nb", 4, 40) == ["a⏎", "b"]
    assert cut("x" * 100, 40) == f"{'x' * 11} … 60 characters … {'x' * 10}"


@given(st.text(), st.integers(5, 50))
def test_short_names_are_short(text: str, most: int) -> None:
    assert len(short(text, most)) <= most
    assert not OBEYED.search(short(text, most))


@given(
    st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=30),
    st.integers(39, 60),
    st.data(),
)
def test_short_names_have_whole_words(words: list[str], most: int, data: st.DataObject) -> None:
    """Words of up to six letters are at most half of the room before and behind the middle."""
    name = words[0] + "".join(data.draw(st.sampled_from(" /:._-")) + word for word in words[1:])
    before, cut, behind = short(name, most).partition("…")
    assert bool(cut) == (len(name) > most)
    assert (name.startswith(before), name.endswith(behind)) == (True, True)
    assert not cut or re.match(r"[\s/:._-]|.?$", name[len(before) :]) or before[-1] in "/:._-"
    assert (
        not cut or re.match(r"[\s/:._-]", behind) or name[: len(name) - len(behind)][-1] in " /:._-"
    )
