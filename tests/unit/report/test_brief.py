"""What is said first: nine lines about one run, the table of several, names that stay whole."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choicewise.extensions.demo.tables import PublishedTable, scores_beside_published
from choicewise.report import brief
from choicewise.report.brief import (
    FEWEST,
    LINES,
    WIDTH,
    first_lines,
    warning_lines,
)
from choicewise.report.tables import IN_SHORT
from choicewise.results.evidence import MissingReason
from choicewise.results.finding import Reversal, ReversalContest
from choicewise.results.number import SERIOUS, WARNINGS, Number
from choicewise.results.published import published
from choicewise.scoring.significance import SignFlip
from choicewise.util.text import broken, percent
from tests.helpers.messages import Gist
from tests.helpers.rows import NAMES, PROTOCOLS, altered, made

HOSTILE = "m\x1b]0;owned\x07\x1b[2J\u202e\n\u2028error: " + "x" * 400
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
WORDS = st.text("ab-_/.: ", min_size=1, max_size=60)
PART = "anatomy, virology, first 100 of each subject, incomplete: 120 of 14,042 items"


def perplexity(value: float = 12.5, **about: object) -> Number:
    return altered(made(**about), value=value, metric="perplexity")


def fits(lines: list[str]) -> None:
    assert max(map(len, lines)) <= WIDTH, lines
    assert not any(map(OBEYED.search, lines))
    assert all(line == line.rstrip() for line in lines)


VALUES = st.one_of(st.just(math.nan), st.floats(0, 1))
ROWS = st.lists(
    st.tuples(st.sampled_from(NAMES), VALUES), unique_by=lambda pair: pair[0], min_size=1
)


@given(
    ROWS,
    st.sampled_from([1, 2, 5, 60, 14_042]),
    st.sampled_from(["model", HOSTILE, "meta-llama/Llama-3.1-8B-Instruct"]),
    st.sampled_from(["", HOSTILE, PART]),
)
@example([(name, 0.5) for name in NAMES], 60, HOSTILE, PART)
@example(
    [(name, 0.5) for name in NAMES[:1]] + [(name, math.nan) for name in NAMES[1:]], 60, HOSTILE, ""
)
@example([(NAMES[0], math.nan)], 60, "model", "")
def test_one_run_takes_nine_lines_with_those_of_what_to_run_next(
    numbers: list[tuple[str, float]], n: int, model: str, part: str
) -> None:
    warnings, reason = (
        (*SERIOUS, "length", "position", "mass"),
        MissingReason("because of " + "this " * 50, "q1", 3),
    )
    rows = [
        made(
            name,
            value,
            model,
            n=n,
            dataset=HOSTILE,
            warnings=warnings,
            missing_reasons=(reason,),
            selection=part,
        )
        for name, value in numbers
    ]
    rows[0] = altered(rows[0], missing=3)
    for each in (rows, [*rows, perplexity(n=n, model=model, dataset=HOSTILE, selection=part)]):
        measured = sum(row.counts.n > 0 for row in each)
        for most in range(
            FEWEST, LINES - 1
        ):  # what to run next takes two or three, and a log says more before
            lines = first_lines(each, most=most)
            assert len(lines) <= most
            fits(lines)
            assert ("without a score" in lines[0]) == (0 < measured < len(each))
            alarmed = any(row.share and row.counts.n for row in each)
            assert any(line.startswith("alarms: ") for line in lines) or not alarmed


@pytest.mark.parametrize("count", [1, 2, 3, 5, 49])
def test_what_is_said_of_so_many_numbers(count: int) -> None:
    rows = [made(name, 0.3 + place / 100) for place, name in enumerate(NAMES[:count])]
    title, *lines = first_lines(rows)
    way = f"under {NAMES[0]}" if count == 1 else f"{count} protocols"
    assert title == f"model on isles: 100 questions, {way}"
    numbers = [line for line in lines if line.startswith("  ")]
    assert len(numbers) == {5: 2}.get(count, min(count, 3))  # the first five score texts alone
    if count <= 3:
        assert [line.split()[-5] for line in numbers] == [percent(row.value) for row in rows]
    else:
        assert numbers[-1] == f"  all {count}: 30.0 – {percent(rows[-1].value)} %, median " + (
            f"{percent(sorted(row.value for row in rows)[count // 2])} %"
        )


def test_of_many_numbers_one_is_of_labels_and_one_of_texts() -> None:
    lines = first_lines([made(name, 0.5) for name in reversed(NAMES)])
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["letters", "mmlu/original"],
        ["cloze", "mmlu/olmes-cf:char_mean"],
    ]


def test_numbers_under_each_other_stand_in_columns() -> None:
    lines = first_lines([made("mmlu/original", 0.05), made("mmlu/cloze:char_mean_bare", 1.0)])
    assert lines[1].index("%") == lines[2].index("%")
    assert lines[1].index("[") == lines[2].index("[")


def test_whether_numbers_are_better_than_guessing() -> None:
    names = NAMES[:2]
    lines = first_lines([made(each, 0.9) for each in names])
    assert Gist("Better than guessing (25 %). ... 100 questions ... 34 %") in lines
    half = first_lines([made(names[0], 0.2), made(names[1], 0.9)])
    assert "(25 %) in 1 of 2 scores" in " ".join(half)
    none = first_lines([made(each, 0.2) for each in names])
    assert "No better than guessing (25 %)" in " ".join(none)
    assert first_lines([perplexity()])[1].startswith("  perplexity  12.50  [")


def test_below_twenty_questions_nothing_is_called_better_than_guessing() -> None:
    lines = first_lines([made(name, 0.5, n=4) for name in NAMES[:3]])
    assert Gist("No better than guessing (25 %). ... 4 questions ... 75 %") in lines
    for n, count in ((4, "4 questions are"), (19, "19 questions are"), (1, "1 question is")):
        few = Gist(f"{count} too few ... (25 %). ... 20")
        assert few in first_lines([made(name, 1.0, n=n) for name in NAMES[:3]])
    assert any(
        line.startswith("Better than guessing") for line in first_lines([made(value=1.0, n=20)])
    )


def test_what_lies_above_guessing_by_luck_is_not_called_better() -> None:
    """One of 49 scores, and two of three that are not clear enough for three tests."""
    rows = [made(name, 0.36 if name == NAMES[7] else 0.25) for name in NAMES[:49]]
    assert Gist("1 of 49 scores beats guessing (needs 34 %)") in first_lines(rows)
    close = [made(name, 0.34) for name in NAMES[:2]] + [made(NAMES[2], 0.2)]
    assert Gist("2 of 3 scores beat guessing (needs 34 %), ... tries") in first_lines(close)
    alike = [made(name, 0.34, predictions="the same") for name in NAMES[:3]]
    assert any(line.startswith("Better than guessing (25 %). ") for line in first_lines(alike))


def test_shares_that_are_no_right_answers_stay_out_of_the_sentence() -> None:
    shares = [altered(made(name, 0.9), metric="mc2") for name in NAMES[:3]]
    assert not any("guessing" in line for line in first_lines(shares))
    lines = first_lines([*shares, made(NAMES[3], 0.2)])
    assert Gist("No better than guessing (25 %). ... 100 questions ... 34 %") in lines


def test_the_size_that_can_be_told_is_the_least_that_would_be_better() -> None:
    """By trying every number of right answers."""
    least = next(right for right in range(101) if made(value=right / 100).interval.low > 0.25)
    (line,) = (line for line in first_lines([made(value=0.2)]) if line.startswith("No better"))
    assert f"at least {least} %" in line


def test_nothing_measured_is_said_and_nothing_else() -> None:
    assert first_lines([]) == []
    lines = first_lines([made(name, math.nan) for name in NAMES])
    assert lines[0] == "model on isles: 100 questions, 49 protocols"
    assert lines[1].startswith("Items are missing under 49 protocols, most under")
    assert not any("nan" in line or " - %" in line for line in lines)


def test_how_many_have_no_number_is_said_of_one_run_and_of_several() -> None:
    rows = [made(name, math.nan if place > 8 else 0.5) for place, name in enumerate(NAMES[:15])]
    assert (
        first_lines(rows)[0] == "model on isles: 100 questions, 9 protocols; 6 more without a score"
    )
    assert (
        first_lines(rows[8:10])[0]
        == f"model on isles: 100 questions, under {NAMES[8]}; 1 more without a score"
    )
    others = [altered(row, model="other") for row in rows[9:]]
    lines = first_lines([*rows, *others])
    assert [line.split()[0] for line in lines[2:4]] == ["model", "other"]
    assert lines[3].split()[1:] == ["-", "-", "-"]
    assert "12 of 21 rows have no score." in lines


@pytest.mark.parametrize(
    "model", ["m", "an-organisation-of-many-words/and-a-model-with-a-long-name-v2-instruct"]
)
def test_the_part_of_the_data_ends_in_a_whole_word(model: str) -> None:
    for lines in (
        first_lines([made(model=model, selection=PART)]),
        first_lines([made(model=each, selection=PART) for each in (model, "b")]),
    ):
        fits(lines)
        shown = re.search(r"(anatomy[^;)…]*?) ?[…;)]", lines[0])[1]
        assert PART.startswith(shown)
        assert PART[len(shown) :][:1] in ("", " ")


def test_of_groups_the_lowest_and_the_highest_are_told() -> None:
    rows = [made(subject=f"group {place}", value=place / 57) for place in range(57)]
    lines = first_lines(rows)
    assert len(lines) <= LINES - 2
    assert lines[0] == f"model on isles: 57 groups of questions, under {NAMES[0]}"
    assert [line.split()[1] for line in lines[1:3]] == ["0", "56"]
    assert lines[3] == "  all 57: 0.0 – 98.2 %, median 49.1 %"


def test_perplexities_take_one_line() -> None:
    rows = [
        perplexity(value, protocol=name)
        for value, name in ((9.5, NAMES[0]), (2e6, NAMES[1]), (math.nan, NAMES[2]))
    ]
    assert first_lines(rows)[1].endswith("; 9.500 – 2e+06 in 2 protocols")
    lines = first_lines([*(made(name) for name in NAMES), *rows])
    assert len(lines) <= LINES - 2
    assert [line for line in lines if line.startswith("  perplexity ")] == first_lines(rows)[1:2]


def test_an_alarm_about_a_number_stands_behind_it() -> None:
    assert IN_SHORT["constant"] in first_lines([made(warnings=("constant",))])[1]
    assert IN_SHORT["length"] not in first_lines([made(warnings=("length",))])[1]


@given(
    st.lists(st.lists(st.sampled_from([*WARNINGS]), max_size=12), min_size=1, max_size=5),
    st.sampled_from([1, 2]),
)
def test_warnings_are_counted_alarms_first(raised: list[list[str]], most: int) -> None:
    rows = [made(warnings=tuple(dict.fromkeys(own))) for own in raised]
    lines = warning_lines(rows, most)
    fits([*lines, ""])
    known = {name for own in raised for name in own if name in IN_SHORT}
    assert bool(lines) == bool(
        {name for row in rows for name in IN_SHORT if name in brief.raised(row)}
    )
    assert len(lines) <= most
    if known & {*SERIOUS}:
        assert lines[0].startswith("alarms: ")
    for line in lines:
        for said, count in re.findall(r"(?:: |, |; )([^:;,]+?) \((\d+) of", line):
            (name,) = (
                each for each, text in IN_SHORT.items() if said.removeprefix("warnings: ") == text
            )
            assert int(count) == sum(name in brief.raised(row) for row in rows)


def test_all_warnings_are_told_or_counted() -> None:
    names = [name for name in IN_SHORT if name in WARNINGS]
    (line,) = warning_lines([made(warnings=tuple(names))], 1)
    told = len(re.findall(r"\(1 of 1\)", line))
    assert int(re.search(r"and (\d+) more$", line)[1]) == len(first_raised(names)) - told


def first_raised(names: list[str]) -> set[str]:
    return {*names} & brief.raised(made(warnings=tuple(names)))


@settings(max_examples=15)
@given(
    st.lists(WORDS, min_size=2, max_size=6, unique=True),
    st.lists(WORDS, min_size=1, max_size=6, unique=True),
)
@example(["a", "b"], ["one benchmark of them"])
@example([HOSTILE, HOSTILE + "y"], [HOSTILE, "b"])
def test_several_models_make_a_table_whose_names_are_whole(
    models: list[str], datasets: list[str]
) -> None:
    rows = [
        made(value=0.5, model=model, dataset=dataset, data=f"#D{place:06}")
        for model in models
        for place, dataset in enumerate(datasets)
    ]
    lines = first_lines(rows)
    fits(lines)
    table = lines[1 : next(place for place, line in enumerate(lines) if f": {NAMES[0]}" in line)]
    for name in (*models, *datasets):
        for word in re.split(r"[\s/:._-]+", name):
            if len(word) <= 40 and word.isalnum():
                assert any(word in line for line in table)


def test_the_table_is_in_order_with_mean_and_ranks() -> None:
    values = {"a": (0.1, 0.9), "b": (0.6, 0.7), "c": (0.9, math.nan)}
    rows = [
        made(value=value, model=model, dataset=name, data=f"#D{name}")
        for model, own in values.items()
        for name, value in zip(("isles", "seas"), own, strict=True)
    ]
    assert first_lines(rows)[:6] == [
        "accuracy in %, one protocol per benchmark",
        "     isles     seas     mean     rank",
        "b     60.0     70.0     65.0        1",
        "a     10.0     90.0     50.0        2",
        "c     90.0        -        -        -",
        f"isles: {NAMES[0]}; seas: {NAMES[0]}",
    ]


def test_of_one_benchmark_the_range_of_all_numbers_stands_beside_the_headline() -> None:
    rows = [
        made(name, value, model)
        for model in "ab"
        for name, value in zip(NAMES[:3], (0.5, 0.25, 0.75), strict=True)
    ]
    shown = first_lines(rows)
    assert shown[1].split() == ["isles", "lowest", "–", "highest", "rank"]
    assert shown[2].split() == ["a", "50.0", "25.0", "–", "75.0", "1"]


def test_datasets_that_are_called_alike_are_told_apart() -> None:
    rows = [made(model=model, data=data) for model in "ab" for data in ("#D1", "#D2")]
    assert f"isles #D1: {NAMES[0]}; isles #D2: {NAMES[0]}" in first_lines(rows)


def test_who_leads_is_told_of_one_benchmark_and_the_table_tells_it_of_several() -> None:
    one = [made(value=value, model=model) for model, value in (("a", 0.9), ("b", 0.2))]
    assert Gist("a is ahead ... b") in first_lines(one)
    more = [altered(row, dataset="seas", data="#D1") for row in one]
    assert not any("ahead" in line for line in first_lines([*one, *more]))


def test_with_averages_of_a_suite_there_is_no_second_table() -> None:
    rows = [made(value=value, model=model) for model, value in (("a", 0.9), ("b", 0.2))]
    assert first_lines(rows, averaged=True) == [Gist("a is ahead ... b")]


@given(WORDS, st.integers(1, 60))
@example("meta-llama/Llama-3.1-8B-Instruct", 16)
def test_a_name_is_broken_between_words_alone(name: str, most: int) -> None:
    lines, place = broken(name, most), 0
    for number, line in enumerate(lines):
        start = name.index(line, place)
        assert name[place:start].strip() == ""
        assert not number or name[start - 1] in " /:._-"
        assert len(line) <= most or re.fullmatch(r"[^\s/:._-]*[\s/:._-]?", line)
        place = start + len(line)
    assert name[place:].strip() == ""


LLAMA = {
    "mmlu/helm": "63.7",
    "mmlu/harness-v0:char_mean_bare": "48.8",
    "mmlu/original-pr13": "63.6",
}
MODELS = "merrow-bpe-2048", "merrow-bpe-512", "merrow-byte", "merrow-unigram-1000"


def demo_rows(value: float = 0.5) -> list[Number]:
    return [made(name, value, model, n=322) for model in MODELS for name in NAMES]


def drawn(
    rows: Sequence[Number], turned: Reversal | None = None, apart: Sequence[Number] = ()
) -> PublishedTable:
    table = scores_beside_published(rows, turned, apart)
    assert table is not None
    return table


def test_what_was_published_stands_outside_the_table_of_the_demo() -> None:
    """As the blog of June 2023 has it: https://huggingface.co/blog/open-llm-leaderboard-mmlu."""
    (head, *models), publication, order = drawn(demo_rows())
    assert head.split() == ["accuracy", "in", "%", *LLAMA]
    assert [line.split() for line in models] == [
        [model, "50.0", "50.0", "50.0"] for model in MODELS
    ]
    assert (
        publication == f"published, MMLU, 14,042 questions: llama-65b {', '.join(LLAMA.values())}"
    )
    assert order == [Gist("ranking is the same")]
    fits([head, *models, publication, *order])
    assert {number[0].model for number in published().values()} == {"llama-65b"}


def test_a_model_on_other_questions_stands_above_and_has_no_rank() -> None:
    real = [
        altered(row, dataset="commons") for row in demo_rows() if row.identity.model == MODELS[0]
    ]
    real = [altered(row, model="SmolLM2-135M-Instruct.Q4_1", value=0.9) for row in real]
    (head, first, *models), publication, order = drawn(demo_rows(), apart=real)
    assert first.split() == ["SmolLM2-135M-Instruct.Q4_1,", "commons", "90.0", "90.0", "90.0"]
    assert {line.split()[1] for line in models} == {demo_rows()[0].identity.dataset}
    assert order == [Gist("ranking is the same")]
    fits([head, first, *models, publication, *order])
    assert len([head, first, *models, publication, *order]) + 1 <= LINES  # the line about the page


def test_a_change_of_order_is_told_with_its_test() -> None:
    rows = [
        replace(row, value=0.9)
        if (row.identity.model, row.identity.protocol) == (MODELS[0], "mmlu/helm")
        else row
        for row in demo_rows()
    ]
    (line,) = drawn(rows).order
    assert "swap is statistically significant" in line
    test = SignFlip(left_only=90, right_only=10, by_tie=0, p=0.0001, exact=True)
    start, end = (
        ReversalContest(
            protocol=name, left=0.9, right=0.5, n=322, first=True, guessed=False, test=test, p=p
        )
        for name, p in (("x", 1e-6), ("y", 0.012))
    )
    turned = Reversal(
        dataset="merrowick", left=MODELS[0], right=MODELS[3], start=start, end=end, tests=18
    )
    (line,) = drawn(rows, turned).order
    assert line == Gist("Ranks change: merrow-bpe-2048 ... merrow-unigram-1000 ... (p = .012).")
    assert len(line) <= WIDTH


def test_without_the_published_protocols_there_is_no_table_of_them() -> None:
    assert scores_beside_published([made("mmlu/cloze:sum")], None) is None
    assert all(name in PROTOCOLS for name in LLAMA)
