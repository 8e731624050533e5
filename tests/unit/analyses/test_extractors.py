"""Every rule on the stored texts of a run: what each reads, how they agree, and which items they dispute."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.extensions.analyses.extractors import (
    LETTER_RULES,
    ExtractorsReport,
    cohen_kappa,
    extractors,
)
from choicewise.extensions.analyses.extractors_report import extractor_tables
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Prompt, TokenScores
from choicewise.results.run import Run
from choicewise.scoring.extract import RULES
from choicewise.scoring.intervals import wilson
from choicewise.table import MOST
from tests.helpers.commands import choicewise

TEXTS = {
    "plain": ("Answer: B", 1),
    "bold": ("The correct answer is **B**.", 1),
    "twice": ("Answer: A is tempting, but no.\nAnswer: B", 1),
    "article": ("A car is fast, so option C", 2),
    "none": ("I do not know", 0),
    "long": ("Let me see. " + "It goes on and on. " * 9 + "The answer is D because A is not.", 3),
}
"""Item → what the model says of it, and which option is right."""

ITEMS = tuple(
    Item(name, f"Which is {name}?", ("u", "v", "w", "x"), (right,))
    for name, (_, right) in TEXTS.items()
)
NAMES = ("options/free-simple-evals", "options/free-simple-evals-multilingual")


class Scripted(HashModel):
    """Says of the item whose name stands in the question what ``TEXTS`` has; of another it gives no answer."""

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for index, question in enumerate(questions):
            assert isinstance(question, Generation)
            asked = question.context[question.context < 256].astype(np.uint8).tobytes().decode()
            text = next(
                (text for name, (text, _) in TEXTS.items() if f"Which is {name}?" in asked), ""
            )
            tokens = [*text.encode()][: question.limit]
            none = np.asarray(tokens, dtype=np.int32)
            said = TokenScores.of(tokens, [-1.0] * len(tokens), [0] * len(tokens))
            yield index, said if text else TokenScores.unanswered("HTTP 500", none)


def asked(out: Path, items: Sequence[Item], names: Sequence[str] = NAMES) -> Run:
    protocols = {name: protocol for each in names for name, protocol in resolve(each).items()}
    return evaluate(
        model=Scripted(), data=Dataset("quiz", {"test": tuple(items)}), protocols=protocols, out=out
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return asked(tmp_path_factory.mktemp("run"), ITEMS)


@pytest.fixture(scope="module")
def report(run: Run) -> ExtractorsReport:
    (only,) = extractors(run)
    return only


def test_every_rule_is_asked_about_every_text(run: Run, report: ExtractorsReport) -> None:
    assert [each.rule for each in report.rules] == [*LETTER_RULES]
    assert (report.n, report.missing, report.protocols) == (len(TEXTS), 0, NAMES)
    for each in report.rules[1:]:
        said = {name: text.encode()[:256].decode() for name, (text, _) in TEXTS.items()}
        read = {name: RULES[each.rule](text, "ABCD") for name, text in said.items()}
        options = {
            name: letter for name, letter in read.items() if letter is not None and letter in "ABCD"
        }
        right = sum("ABCD"[TEXTS[name][1]] == letter for name, letter in options.items())
        assert each.read == pytest.approx(len(options) / len(TEXTS)), each.rule
        assert each.accuracy == pytest.approx(right / len(TEXTS)), each.rule
        assert (each.ci_low, each.ci_high) == pytest.approx(wilson(each.accuracy, len(TEXTS)))


def test_a_rule_that_a_protocol_decides_by_has_its_number(
    run: Run, report: ExtractorsReport
) -> None:
    deciding = {name: each for each in report.rules for name in each.protocols}
    assert {name: run.measurements[name].overall for name in NAMES} == {
        name: pytest.approx(each.accuracy) for name, each in deciding.items()
    }
    assert {each.rule for each in deciding.values()} == {
        run.protocols[name].decision for name in NAMES
    }


def test_items_in_which_two_rules_read_different_options_are_disputed(
    report: ExtractorsReport,
) -> None:
    disputed = {item.item: item for item in report.disputed}
    assert set(disputed) == {"plain", "twice", "article", "long"}
    assert report.partly == 1  # bold
    twice, long = disputed["twice"], disputed["long"]
    assert (twice.start, twice.end, twice.right) == (TEXTS["twice"][0], "", "B")
    assert (long.start, long.end) == (TEXTS["long"][0][:60], TEXTS["long"][0][-120:])
    for name, item in disputed.items():
        read = {rule: RULES[rule](TEXTS[name][0], "ABCD") or "" for rule in RULES}
        by_letter = {letter: set(rules) - {"letter-match"} for letter, rules in item.read.items()}
        assert by_letter == {
            letter: {rule for rule in read if read[rule] == letter} for letter in by_letter
        }
        assert sum(map(len, item.read.values())) == len(LETTER_RULES)
        assert list(item.read)[-1] == ""
    sizes = [
        [len(rules) for letter, rules in item.read.items() if letter] for item in report.disputed
    ]
    united = [first - sum(others) for first, *others in sizes]
    assert united == sorted(united)  # the most evenly divided comes first


def test_an_item_without_a_text_is_missing(tmp_path: Path) -> None:
    nameless = Item("lost", "Which is unheard of?", ("u", "v", "w", "x"), (0,))
    (only,) = extractors(asked(tmp_path, [*ITEMS[:2], nameless], NAMES[:1]))
    assert (only.n, only.missing, len(only.disputed)) == (2, 1, 1)
    assert {each.rule: each.accuracy for each in only.rules}["mmlu-pro@f418b11"] == 1.0


def test_pairs_count_texts_read_alike(report: ExtractorsReport) -> None:
    pairs = {(pair.left, pair.right): pair for pair in report.pairs}
    assert len(pairs) == len(LETTER_RULES) * (len(LETTER_RULES) - 1) / 2
    old, new = RULES["simple-evals@f517a91"], RULES["inspect@499e615"]
    read = [[rule(text, "ABCD") for text, _ in TEXTS.values()] for rule in (old, new)]
    pair = pairs["simple-evals@f517a91", "inspect@499e615"]
    assert pair.same == pytest.approx(sum(map(lambda one, other: one == other, *read)) / len(TEXTS))


@given(pairs=st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=30))
def test_kappa_is_cohens(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    n, counts = (
        len(pairs),
        [[sum(pair == (i, j) for pair in pairs) for j in range(-1, 4)] for i in range(-1, 4)],
    )
    rows, columns = (
        [sum(row) for row in counts],
        [sum(column) for column in zip(*counts, strict=True)],
    )
    chance = sum(row * column for row, column in zip(rows, columns, strict=True))
    if n == 0 or chance == n * n:
        assert math.isnan(cohen_kappa(left, right))
    else:
        expected = (n * sum(counts[i][i] for i in range(5)) - chance) / (n * n - chance)
        assert cohen_kappa(left, right) == pytest.approx(expected)


def test_kappa_of_the_textbook() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: 0.4."""
    left, right = np.repeat([1, 1, 0, 0], [20, 5, 10, 15]), np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert cohen_kappa(left, right) == pytest.approx(0.4)


def test_the_report_prints_rules_agreement_and_disputes(run: Run, report: ExtractorsReport) -> None:
    told = choicewise("report", run.folder, "extractors", code=0, COLUMNS="100")
    assert "what 17 rules read in 6 texts of options/free-simple-evals" in " ".join(
        told.stdout.split()
    )
    assert "Cohen's kappa" in told.stdout
    assert "A is tempting, but no.⏎Answer: B" in " ".join(told.stdout.split())
    assert "[…]" in told.stdout  # of the long text, start and end
    listed = json.loads(choicewise("report", run.folder, "extractors", "--json", code=0).stdout)
    tables = {table["table"]: table for table in listed}
    assert tables["rules"]["run"] == str(run.folder)
    assert {rule["rule"] for rule in tables["rules"]["rows"]} == {*LETTER_RULES}
    assert [item["item"] for item in tables["disputed"]["rows"]] == [
        item.item for item in report.disputed
    ]
    assert len(tables["readings"]["rows"]) == sum(len(item.read) for item in report.disputed)


def test_more_than_twenty_items_in_dispute_are_shown_where_all_are_asked_for(
    tmp_path: Path,
) -> None:
    many = [
        Item(str(number), f"{number}: Which is twice?", ("u", "v", "w", "x"), (1,))
        for number in range(MOST + 2)
    ]
    folder = asked(tmp_path, many, NAMES[:1]).folder
    some, every = (
        choicewise("report", folder, "extractors", *more, code=0) for more in ([], ["--all"])
    )
    assert ["A is tempting" in line for line in some.stdout.splitlines()].count(True) == MOST
    assert ["A is tempting" in line for line in every.stdout.splitlines()].count(True) == MOST + 2
    assert "--all" in some.stderr
    assert "--all" not in every.stderr


def test_rules_that_read_alike_share_a_number_and_all_are_named(report: ExtractorsReport) -> None:
    rules, *_ = extractor_tables("here", report)
    numbered = {row[1]: row[0] for row in rules.rows}
    assert list(numbered) != [*LETTER_RULES]
    assert set(numbered) == {*LETTER_RULES}
    for pair in report.pairs:
        assert (numbered[pair.left] == numbered[pair.right]) == (pair.same == 1), pair


def test_a_run_without_texts_says_so(tmp_path: Path) -> None:
    data = Dataset("quiz", {"test": ITEMS})
    letters = evaluate(model="fake:hash", data=data, protocols=["options/cloze:sum"], out=tmp_path)
    assert extractors(letters) == []
    said = choicewise("report", letters.folder, "extractors", code=0).stdout.replace("\n", " ")
    assert "no protocol reads" in " ".join(said.split())
    (nothing,) = json.loads(
        choicewise("report", letters.folder, "extractors", "--json", code=0).stdout
    )
    assert nothing["rows"] == []
