"""Runs of a model that thinks: no answer that was cut is a false zero, whatever the limit."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from choicewise import evaluate, open_run
from choicewise.errors import ProtocolError
from choicewise.extensions.comparison.compare import comparisons
from choicewise.extensions.comparison.comparison_report import comparison_sentence
from choicewise.extensions.interop.write.best_models import against_best
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import LATER, ObservationRow
from choicewise.report.brief import first_lines
from choicewise.report.findings import lead_sentences
from choicewise.report.tables import serious_warnings
from choicewise.results.finding import finding, lead, reversal
from choicewise.results.headline import matrix
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcomes, ranked
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.scoring.answers import AnswerCounts
from choicewise.store.folder import write_manifest
from choicewise.store.tables import SCHEMAS, make_table, read_blocks, write_block
from tests.helpers.messages import Gist
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.thinking import Thinker, drawn_thoughts, quiz, reads, scripts

WITHOUT_END = 10_000
LIMITS = (*range(4, 65, 4), WITHOUT_END)
RULES = ("inspect@0.3.264", "simple-evals@f517a91", "harness-letter@4e7e0d4")


def thinking(
    folder: Path,
    protocols: dict[str, Protocol],
    count: int = 40,
    seed: int = 1,
    opened: bool = False,
) -> Run:
    golds, thoughts, answers = drawn_thoughts(count, seed)
    model = Thinker(scripts(thoughts, answers, opened), opened)
    return evaluate(model=model, data=quiz(golds), protocols=protocols, out=folder)


class Limited(NamedTuple):
    """By name the rows of every rule, limit and value of the axis; ``opened``: whether the prompt opens the thought."""

    opened: bool
    rows: dict[str, Number]


@pytest.fixture(scope="module", params=[False, True], ids=["writes its tag", "its prompt opens it"])
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Limited:
    protocols = {
        f"{rule} {limit} {cut}": reads(limit, rule, cut=cut)
        for rule in RULES
        for limit in LIMITS
        for cut in ("read", "wrong", "missing")
    }
    run = thinking(tmp_path_factory.mktemp("limited") / "run", protocols, opened=request.param)
    return Limited(request.param, {row.identity.protocol: row for row in run.rows()})


@pytest.mark.costly("a run at seventeen limits under three rules")
@pytest.mark.parametrize("cut", ["read", "wrong", "missing"])
@pytest.mark.parametrize("rule", RULES)
def test_the_score_without_a_limit_lies_within_the_bounds_at_every_limit(
    rule: str, cut: str, limited: Limited
) -> None:
    rows = [limited.rows[f"{rule} {limit} {cut}"] for limit in LIMITS]
    final = rows[-1]
    assert (final.cut, final.bounds.low, final.bounds.high, final.counts.missing) == (
        0,
        final.value,
        final.value,
        0,
    )
    assert 0.1 < final.value < 0.9
    lows = [row.bounds.low for row in rows]
    highs = [row.bounds.high for row in rows]
    shares = [row.cut for row in rows]
    assert all(row.bounds.low <= final.value <= row.bounds.high for row in rows)
    assert (lows, highs) == (sorted(lows), sorted(highs, reverse=True))
    assert shares == sorted(shares, reverse=True)
    assert (shares[0] >= 39, shares[-2]) == (True, 0)
    assert rows[0].bounds.high - rows[0].bounds.low == shares[0] / 40
    for row in rows:
        counts = row.answers
        assert counts is not None
        assert sum(list(asdict(counts).values())[:7]) == 40
        assert ("cut" in row.diagnosis.warnings) == (row.cut > 0)
        if cut != "read":
            assert (
                row.value
                == pytest.approx(
                    row.bounds.low if cut == "wrong" else row.bounds.low * 40 / max(row.counts.n, 1)
                )
                or not row.counts.n
            )
        assert (row.counts.n, row.counts.missing) == (
            (40 - row.cut, row.cut) if cut == "missing" else (40, 0)
        )


@pytest.mark.costly("a run at seventeen limits under three rules")
def test_the_bounds_are_those_of_the_texts_themselves(limited: Limited) -> None:
    """Counted by hand: a text is whole that has fewer tokens than it may have; m / N, and (m + u) / N."""
    golds, thoughts, answers = drawn_thoughts(40, 1)
    texts = scripts(thoughts, answers, limited.opened).values()
    sizes = [len(tokens) for tokens in Thinker({}).tokenizer.encode([*texts], special=False)]
    right = [answer.endswith("ABCD"[gold]) for answer, gold in zip(answers, golds, strict=True)]
    for limit in LIMITS:
        whole = sum(ok and size < limit for ok, size in zip(right, sizes, strict=True))
        cut = sum(size >= limit for size in sizes)
        row = limited.rows[f"inspect@0.3.264 {limit} read"]
        assert (row.bounds.low, row.bounds.high, row.cut) == (
            pytest.approx(whole / 40),
            pytest.approx((whole + cut) / 40),
            cut,
        )


def test_a_letter_in_the_thought_is_never_the_answer(tmp_path: Path) -> None:
    """But a published rule reads whatever text there is, where the thought does not end."""
    model = Thinker(scripts(["Answer: A\n"] * 4, ["Answer: B"] * 4))
    protocols = {
        f"{limit} {cut}": reads(limit, cut=cut)
        for limit in (5, 50)
        for cut in ("read", "wrong", "missing")
    }
    run = evaluate(model=model, data=quiz([1, 1, 0, 0]), protocols=protocols, out=tmp_path / "run")
    said = {name: each.prediction.tolist() for name, each in run.measurements.items()}
    assert said["50 read"] == said["50 wrong"] == said["50 missing"] == [1] * 4
    assert (said["5 read"], said["5 wrong"], said["5 missing"]) == ([0] * 4, [-1] * 4, [-1] * 4)
    rows = {row.identity.protocol: row for row in run.rows()}
    assert rows["5 read"].value == 0.5
    assert (rows["5 wrong"].value, rows["5 wrong"].counts.missing) == (0.0, 0)
    (reason,) = rows["5 missing"].missing_reasons
    assert reason.reason.startswith("cut while thinking")
    assert {
        (row.bounds.low, row.bounds.high) for name, row in rows.items() if name.startswith("5 ")
    } == {(0.0, 1.0)}


def test_what_is_kept_of_every_generation(tmp_path: Path) -> None:
    run = thinking(tmp_path / "run", {"short": reads(8), "long": reads(200)}, 6, opened=True)
    observed = run.tables.observations.to_pylist()
    assert {row["finish"] for row in observed} == {"length", "eos"}
    assert {row["opened"] for row in observed} == {"<think>"}
    assert {row["raw"] for row in observed} == {row["thought"] for row in observed} == {None}
    assert {len(row["tokens"]) for row in observed if row["finish"] == "length"} == {8}


def as_before(run: Run) -> Run:
    """The run as an earlier version wrote it: without the columns that say how a text ended."""
    blocks = []
    for block in run.manifest.blocks:
        tables: dict[str, Any] = {name: read_blocks(run.folder, [block], name) for name in SCHEMAS}
        rows = [
            ObservationRow(**{**row, **dict.fromkeys(LATER)})
            for row in tables["observations"].to_pylist()
        ]
        kept = [name for name in SCHEMAS["observations"].names if name not in LATER]
        tables["observations"] = make_table(SCHEMAS["observations"], rows).select(kept)
        blocks.append(replace(block, files=write_block(run.folder, block.name, tables)))
    write_manifest(run.folder, replace(run.manifest, blocks=tuple(blocks)))
    return open_run(run.folder)


def test_old_runs_are_read_on_and_say_what_is_not_known(tmp_path: Path) -> None:
    """Of a text with as many tokens as it may have nobody knows, unless its thought is open."""
    scripted = {"Question number 0?": "Answer: B", "Question number 1?": "Answer: B\nand so on"}
    scripted |= {"number 2?": "<think>hm"}
    protocol = {"p": reads(10)}
    new = evaluate(
        model=Thinker(scripted), data=quiz([1, 1, 1]), protocols=protocol, out=tmp_path / "run"
    )
    new_row, old_row = new.rows()[0], as_before(new).rows()[0]
    assert new_row.answers == AnswerCounts(
        answered=1,
        unread=0,
        cut_thinking=0,
        cut_answer=1,
        empty=1,
        filtered=0,
        error=0,
        unknown=0,
        limit=10,
    )
    assert old_row.answers == AnswerCounts(
        answered=2,
        unread=0,
        cut_thinking=0,
        cut_answer=0,
        empty=1,
        filtered=0,
        error=0,
        unknown=1,
        limit=10,
    )
    same = ("value", "n", "missing", "i", "t", "id", "signature")
    new_content = new_row.as_json()
    old_content = old_row.as_json()
    assert [new_content[name] for name in same] == [old_content[name] for name in same]
    assert (old_row.bounds.low, old_row.bounds.high) == (old_row.value, old_row.value)


def test_reports_name_the_share_that_was_cut_and_both_bounds(tmp_path: Path) -> None:
    run = thinking(tmp_path / "run", {"p": reads(40, cut="missing")}, 40)
    (row,) = run.rows()
    text = row.cut_text
    assert text == Gist(
        f"{100 * row.cut / 40:.0f} % ... 40 tokens: ... "
        f"between {100 * row.bounds.low:.1f} and {100 * row.bounds.high:.1f}"
    )
    assert 0.02 < row.cut / 40 < 0.9
    assert f"alarms: {text}" in first_lines([row])
    assert any(line.startswith("alarm: cut") and text in line for line in serious_warnings([row]))
    told = row.as_json()
    assert told["answers"]["text"] == text
    assert told["answers"]["cut"] == row.cut
    assert "cut" in told["alarms"]
    assert (told["low"], told["high"]) == (row.bounds.low, row.bounds.high)
    (kept,) = summarize(run.folder).rows
    assert kept.answers == row.answers


def two(tmp_path: Path, limit: int) -> tuple[Run, Run]:
    """A model that is always right and thinks long, and one that is right half the time and does not think."""
    golds = [number % 4 for number in range(60)]
    right = ["Answer: " + "ABCD"[gold] for gold in golds]
    half = [said if place % 2 else "Answer: none" for place, said in enumerate(right)]
    sizes = [10 if place % 3 == 0 else 100 for place in range(60)]
    protocol, runs = {"p": reads(limit)}, []
    for name, thoughts, answers in (
        ("long", ["x" * size for size in sizes], right),
        ("short", ["x"] * 60, half),
    ):
        model = Thinker(scripts(thoughts, answers))
        model.name = name
        runs.append(
            evaluate(
                model=model, data=quiz(golds), protocols=protocol, out=tmp_path / f"{name} {limit}"
            )
        )
    return runs[0], runs[1]


def test_a_conclusion_that_cut_answers_could_turn_round_is_not_shown(tmp_path: Path) -> None:
    whole, cut = two(tmp_path, 200), two(tmp_path, 40)
    (sure,), (open_,) = (comparisons(*runs, []) for runs in (whole, cut))
    assert comparison_sentence(sure) == Gist("A is better ... B by 50.0 points ... 60 items")
    assert (sure.cut, sure.open) == ((0, 0), False)
    assert (open_.cut, open_.difference.n, open_.difference.value) == (
        (40, 0),
        20,
        pytest.approx(0.5),
    )
    assert (open_.low, open_.high) == (pytest.approx(20 / 60 - 0.5), pytest.approx(0.5))
    assert comparison_sentence(open_) == Gist("Undecided: A ... 50.0 points ... B on 20 items")
    rows = [ranked([run.rows()[0] for run in runs]) for runs in (whole, cut)]
    assert [(row.ranks.rank, row.ranks.low, row.ranks.high) for row in rows[0]] == [
        (1, None, None),
        (2, None, None),
    ]
    assert [(row.ranks.low, row.ranks.high) for row in rows[1]] == [(1, 2), (1, 2)]
    leads = [lead(own) for own in rows]
    assert [each and each.leader for each in leads] == ["long", None]
    assert lead_sentences(finding(rows[1])) == [Gist("cut answers leave open")]


def test_nothing_is_better_in_a_table_where_cut_answers_leave_it_open(tmp_path: Path) -> None:
    levels = []
    for runs in (two(tmp_path, 200), two(tmp_path, 40)):
        kept = [summarize(run.folder) for run in runs]
        rows, outcomes = (
            [row for each in kept for row in each.rows],
            [each.outcomes for each in kept],
        )
        levels.append(against_best(matrix(rows, outcomes), outcomes).level)
        assert reversal([Read(each.rows, each.outcomes) for each in kept]) is None
    assert sorted(levels[0]) == [(False,), (True,)]
    assert levels[1] == ((True,), (True,))


class Read:
    def __init__(self, rows: tuple[Number, ...], outcomes: Outcomes) -> None:
        self.rows, self.outcomes = rows, outcomes


def test_the_axis_is_in_the_signature_and_only_of_protocols_that_read_text() -> None:
    assert [
        f"|cut:{cut}|" in signature(reads(9, cut=cut)) for cut in ("read", "wrong", "missing")
    ] == [True] * 3
    assert len({reads(9, cut=cut).digest for cut in ("read", "wrong", "missing")}) == 3
    assert len({reads(9, cut=cut).prompt_digest for cut in ("read", "wrong", "missing")}) == 1
    with pytest.raises(ProtocolError, match="use cut read"):
        mmlu_protocol(cut="missing")
