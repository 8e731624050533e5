"""The page of several runs: what it holds, that nothing in it does harm, what it says of runs that are not whole."""

import hashlib
import json
import math
import re
import shlex
import sys
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from html import unescape
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.errors import StoreError, UsageError
from choicewise.extensions.analyses.charts.probabilities import stated_probabilities
from choicewise.extensions.analyses.multiverse import multiverse
from choicewise.extensions.comparison.compare import comparisons
from choicewise.page.charts import lanes as ladder_chart
from choicewise.page.document import Content, document, inside_items, write_page
from choicewise.page.embed import is_address, renderer_script
from choicewise.page.item_details import rounded
from choicewise.page.item_views import details, index_items, packed, study_items
from choicewise.page.overview import overviews, title
from choicewise.page.reproduce import selectors
from choicewise.page.sections import Steps, pair_data, steps, telling
from choicewise.page.study import Study, make_study, pairs, read_study, study_of, turned
from choicewise.protocols.catalogue import resolve
from choicewise.results.explain import explain, explain_items
from choicewise.results.ladder import ladder
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from choicewise.running.front import climb
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import Damage
from choicewise.util.jsonio import page_json as json_text
from choicewise.util.text import percent, shown_line
from choicewise.util.text import shown as shown_text
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.page_runs import HOSTILE, PROTOCOLS, Page, renamed, write_hostile_run, write_run
from tests.helpers.rows import altered

pytest.importorskip("vl_convert", reason="pages need choicewise[page]")

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")
SECTIONS = ("numbers", "why", "order", "pair", "chain", "calibration")
ASKED = ("mmlu/original", "mmlu/harness-v0", "mmlu/helm", "mmlu/cloze:sum", "mmlu/cloze:pmi-answer")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models on the same questions."""
    folder, models = (
        tmp_path_factory.mktemp("runs"),
        {"hash": "hash", "oracle": "oracle", "anti": "anti-oracle"},
    )
    return [write_run(folder / name, f"fake:{model}", ASKED) for name, model in models.items()]


@pytest.fixture(scope="module")
def study(runs: list[Path]) -> Study:
    return read_study(runs)


@pytest.fixture(scope="module")
def written(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "page.html"
    write_page(runs, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written: str) -> Page:
    return Page(written)


def data_of(page: Page, name: str) -> Any:
    """What an element holds for the page's script."""
    ((about, text),) = [(about, text) for about, text in page.scripts if about.get("id") == name]
    if about["type"] == "application/json":
        return json.loads(text)
    return json.loads(zlib.decompress(b64decode(text)))


def text_of(study: Study, items: int = 1) -> str:
    content = Content(study)
    return document(content, "21 Nov 2026", inside_items(content, items))


def page_of(*runs: Path, items: int = 1) -> Page:
    return Page(text_of(read_study(runs), items))


def test_every_number_stands_in_a_table_and_in_the_chart_behind_it(
    study: Study, page: Page
) -> None:
    for place, run in enumerate(study.runs):
        kept = data_of(page, f"run-{place}")
        assert {row[0]: row[2] for row in kept["numbers"]} == {
            row.identity.protocol: percent(row.value) for row in run.rows
        }
        drawn = {
            each["protocol"]: each["value"]
            for each in kept["strip"]["values"]
            if each["kind"] == "number"
        }
        assert drawn == pytest.approx(
            {row.identity.protocol: row.value for row in run.rows}, abs=1e-5
        )
    first = [row for row in page.tables["All numbers"] if len(row) > 1][1:]
    assert first == data_of(page, "run-0")["numbers"]
    ids = [about["id"] for tag, about in page.elements if tag == "section"]
    assert ids == [*SECTIONS, "items", "protocols", "warnings", "again"]
    assert title(study, overviews(study)) in page.text


def test_only_our_scripts_and_style_may_run_and_nothing_is_fetched(page: Page) -> None:
    (policy,) = [about["content"] for tag, about in page.elements if about.get("http-equiv")]
    assert policy is not None
    run = [text for about, text in page.scripts if "type" not in about]
    assert len(run) == 2
    hashes = {
        f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
        for text in [*run, *page.styles]
    }
    assert set(re.findall(r"'(sha256-[^']+)'", policy)) == hashes
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'none'" in policy
    assert not any(
        name == "style" or name.startswith("on") for _, about in page.elements for name in about
    )
    assert not {tag for tag, _ in page.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form action",
    }
    addresses = {
        about[name] or ""
        for _, about in page.elements
        for name in ("src", "href")
        if about.get(name)
    }
    assert {address.split(":")[0] for address in addresses if ":" in address} <= {"https", "data"}
    assert not re.search(r"url\(|@import", "".join(page.styles))


@pytest.mark.costly("texts of ten thousand characters under several protocols")
def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path) -> None:
    shown = page_of(write_hostile_run(tmp_path / "run"), items=len(HOSTILE))
    assert [about for about, _ in shown.scripts if "type" not in about] == [{}, {}]
    assert not any(tag in ("img", "b") and "onerror" in about for tag, about in shown.elements)
    assert not any(
        (about.get("href") or "").startswith("javascript:") for _, about in shown.elements
    )
    everything = "".join(
        text for about, text in shown.scripts if about.get("type") == "application/json"
    )
    assert not HIDDEN.search(shown.text + everything)
    assert "</script>" not in everything
    index = data_of(shown, "items-0")
    assert len(index["ids"]) == len(HOSTILE)
    assert any("\\u202e" in question for question in index["questions"])
    assert max(map(len, index["questions"])) < 100
    assert "</script><script>window.harm = 1</script>\\u202e\\x1b[31m" in shown.text


def test_addresses_that_a_browser_would_run_are_no_links() -> None:
    assert is_address("https://example.org/a")
    for text in (
        "javascript:alert(1)",
        " https://x",
        "data:text/html,x",
        "HTTPS://x\n",
        "https://a b",
        "//x",
    ):
        assert not is_address(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(),
        lambda each: (
            st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=4), each, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_json_in_a_page_ends_no_element_and_hides_nothing(content: Any) -> None:
    text = json_text(content)
    assert not set(text) & set("<>&\u2028\u2029")
    assert not HIDDEN.search(text)
    assert json_text(json.loads(text)) == text  # what was made visible stays as it is


def test_numbers_that_json_does_not_know_are_null() -> None:
    assert json_text([float("nan"), float("inf"), 0.123456789, 2.0]) == "[null,null,0.123457,2]"


def test_one_model_one_protocol_one_item(tmp_path: Path) -> None:
    shown = page_of(
        write_run(tmp_path / "run", protocols=["mmlu/original"], subjects=("tides",), questions=1)
    )
    ids = [about["id"] for tag, about in shown.elements if tag == "section"]
    assert ids == ["numbers", "chain", "calibration", "items", "protocols", "warnings", "again"]
    assert len(data_of(shown, "items-0")["ids"]) == 1
    assert [row[0] for row in shown.tables["All numbers"]] == ["protocol", "mmlu/original"]


@pytest.mark.costly("two pages")
def test_numbers_without_an_item_are_said_to_be_none(tmp_path: Path) -> None:
    names = ["mmlu/original", "mmlu/cloze:sum"]
    summary, other = (
        summarize(write_run(tmp_path / name, protocols=names)) for name in ("one", "other")
    )
    nothing = [
        replace(each, values=np.array([np.nan]), codes=each.codes * 0)
        for each in summary.outcomes.outcomes
    ]
    rows = tuple(
        altered(row, value=np.nan, se=np.nan, ci_low=np.nan, ci_high=np.nan, n=0)
        for row in summary.rows
    )
    empty = replace(summary, rows=rows, outcomes=replace(summary.outcomes, outcomes=tuple(nothing)))
    for study in (make_study([empty]), make_study([empty, other])):
        assert {row[2] for row in Page(text_of(study)).tables["All numbers"][1:]} == {"-"}


@pytest.mark.costly("a page of two runs")
def test_models_on_other_data_are_not_compared(runs: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", protocols=["mmlu/original"], subjects=("tides",))
    (pair,) = pairs(read_study([runs[0], other]))
    assert pair.reason == Gist("the data differ ... A: data #D")
    shown = page_of(other, runs[0])
    assert "no two different numbers" in shown.text
    assert "Not comparable: the data" in shown.text
    assert len(data_of(shown, "data")["items"]) == 2
    assert turned(pair).reason.count("#D") == 2


def test_runs_with_the_same_model_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    one = {"protocols": ["mmlu/original"], "questions": 1}
    twins = [
        write_run(tmp_path / model / "same", f"fake:{model}", **one) for model in ("hash", "oracle")
    ]
    twins.append(renamed(write_run(tmp_path / "c" / "same", subjects=("tides",), **one), "same"))
    labels = read_study(twins).labels
    assert len(set(labels)) == 3
    assert all(label.startswith("same") for label in labels)
    assert read_study([runs[0], runs[0]]).labels == ["hash"]


@pytest.mark.costly("draws whole pages")
@pytest.mark.filterwarnings("ignore:.*left out")
def test_an_unfinished_run_and_a_damaged_block_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", protocols=["mmlu/original"])
    write_manifest(run, replace(read_manifest(run), complete=False))
    assert "is still being written" in page_of(run).text
    write_manifest(run, replace(read_manifest(run), complete=True))
    sorted((run / "blocks").rglob("spans.parquet"))[0].write_bytes(b"rubbish")
    text = page_of(run).text
    assert re.search(r"run: items 1 to \d+ of \w+ \(test\) .* spans.parquet", text)


def test_what_can_not_be_a_page_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "page.items").mkdir()
    (tmp_path / "page.items" / "mine.txt").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    for out, kind, words in (
        ("", UsageError, "is a folder"),
        ("page.pdf", UsageError, "does not end in .html"),
        ("file/page.html", StoreError, "can't be written"),
        ("page.html", UsageError, "1 other file"),
        ("new.html", StoreError, "nowhere"),
    ):
        with pytest.raises(kind, match=words):
            write_page([tmp_path / "nowhere"], tmp_path / out)
    for name in ("v.pdf", "page.png", "rows.csv", "page.xhtml"):
        refused = choicewise(
            "page", tmp_path / "nowhere", "--out", tmp_path / name, code=UsageError.exit_code
        )
        assert "ends in .html" in refused.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.costly("a page is written three times")
def test_items_stand_in_the_page_or_beside_it(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.page.document.ROOM", 15_000)
    written = write_page(runs[:1], tmp_path / "page.html")
    page, beside_it = (
        Page((tmp_path / "page.html").read_text(encoding="utf-8")),
        tmp_path / "page.items",
    )
    (listed,) = data_of(page, "data")["items"]
    inside = [place for chunk in listed["chunks"] for place in chunk["ids"]]
    beside = [place for part in listed["parts"] for place in part["ids"]]
    assert 0 < len(inside) < 12
    assert sorted(inside + beside) == list(range(12))
    assert (written.inside, written.beside) == (len(inside), len(beside))
    for part in listed["parts"]:
        content = (beside_it / part["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == part["sha256"]
        ids = data_of(page, "items-0")["ids"]
        assert [item["id"] for item in json.loads(content)["items"]] == [
            ids[place] for place in part["ids"]
        ]
    few = write_page(runs[:1], tmp_path / "page.html", items=11)
    assert few.inside + few.beside == 11
    write_page(runs[:1], tmp_path / "page.html", items=1)
    assert not beside_it.exists(), "what an earlier page had there goes with it"


@pytest.mark.costly("three runs are compared in full")
def test_pairs_are_those_of_compare_corrected_as_by_the_multiverse(
    runs: list[Path], study: Study
) -> None:
    """Corrected for the protocols that can differ, which are fewer here than all."""
    opened = [open_run(run) for run in runs]
    duels = {(each.left, each.right): each for each in multiverse(opened).duels}
    for pair in pairs(study):
        expected = {
            each.left.protocol: each
            for each in comparisons(opened[pair.left], opened[pair.right], [])
        }
        assert [contest.protocol for contest in pair.contests] == list(expected)
        for contest in pair.contests:
            whole = expected[contest.protocol]
            assert repr(contest.difference) == repr(whole.difference)
            assert contest.test == whole.test
            assert contest.detectable == pytest.approx(whole.detectable, nan_ok=True)
        from_right = turned(pair).contests
        assert [-each.difference.value for each in from_right] == [
            each.difference.value for each in pair.contests
        ]
        duel = duels[
            study.runs[pair.left].manifest.model.name, study.runs[pair.right].manifest.model.name
        ]
        assert pair.tests == len(duel.measured) < len(pair.contests)
        assert pair.ahead >= duel.significant()
        corrected = {each.protocol: each.p_holm for each in pair.contests}
        for contest in duel.measured:
            assert all(
                corrected[name] == contest.p_holm
                for name in (contest.protocol, *contest.duplicates)
            )


def test_other_texts_are_not_tested(runs: list[Path]) -> None:
    study = read_study(runs[:2])
    row = study.runs[1].row_of["mmlu/original"]
    study.runs[1].row_of["mmlu/original"] = altered(row, i="#Iother0")
    (pair,) = pairs(study)
    (contest,) = (each for each in pair.contests if each.protocol == "mmlu/original")
    assert contest.other_texts
    assert math.isnan(contest.p_holm)
    assert pair_data(study, pair)["said"] == Gist("Not comparable under 1 protocol")


def shown_ladder(known: Steps, start: str, end: str) -> list[dict[str, Any]]:
    """What the page shows of a way, without what only its table has."""
    records = known.records(start, end)
    for record in records[1:-1]:
        del record["changes"], record["reached"]
    return records


def test_every_way_is_the_ladder_between_its_ends(study: Study) -> None:
    run = study.runs[0]
    known = steps(run)
    first = telling(run, known)
    assert len(known.ways) == len(run.protocols) * (len(run.protocols) - 1)
    for way in list(known.ways)[::7]:
        if first is not None and {*way} != {*first}:
            expected = ladder_chart.ladder_values(ladder(run.outcomes, *way))
            assert repr(shown_ladder(known, *way)) == repr(expected)


def test_the_first_way_there_and_back_has_the_steps_of_the_command(runs: list[Path]) -> None:
    names = ["mmlu/original", "mmlu/harness-v0:char_mean_bare"]
    study = study_of([open_run(runs[0]).choose(names)])
    run = study.runs[0]
    known = steps(run)
    first = telling(run, known)
    assert first is not None
    assert set(first) == set(names)
    numbers = {name: number for number, name in enumerate(names)}
    kept = known.data(numbers)
    for start, end in (first, first[::-1]):
        climbed = climb(run.folder, start, end).in_order
        records = shown_ladder(known, start, end)
        assert len(ladder(run.outcomes, start, end).steps) == 1
        assert len(climbed.steps) > 1
        assert repr(records) == repr(ladder_chart.ladder_values(climbed))
        way = [numbers[start], *kept["ways"][f"{numbers[start]}>{numbers[end]}"], numbers[end]]
        assert len(set(way)) == len(climbed.steps) + 1
        for before, after in pairwise(way):
            assert f"{before}>{after}" in kept["steps"]


def test_answers_of_large_and_damaged_runs_are_not_read_for_a_way(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = study.runs[0]
    monkeypatch.setattr("choicewise.page.study.open_run", None)
    damage = Damage(run.manifest.blocks[0], run.folder, "gone")
    steps(replace(run, damages=(damage,)))
    monkeypatch.setattr("choicewise.page.sections.MANY", run.items)
    steps(run)


def test_it_makes_no_difference_whether_runs_stay_in_memory(study: Study) -> None:
    assert all(run.is_kept for run in study.runs)
    assert study.runs[0].open() is study.runs[0].open()
    apart = Study(tuple(replace(run, is_kept=False) for run in study.runs))
    made = []
    for of_study in (study, apart):
        (items,) = study_items(of_study)
        ids = [items.index.ids[place] for place in items.index.order[:2]]
        ((_, batch),) = details(of_study, items, items.index.order[:2])
        stated = stated_probabilities(of_study)
        ways = steps(of_study.runs[0])
        numbers = {name: number for number, name in enumerate(of_study.protocols)}
        made.append(repr((batch.data(ids), ways.data(numbers), stated)))
    assert made[0] == made[1]


def test_the_list_of_items_says_what_each_protocol_got_right(study: Study) -> None:
    index = index_items(study.runs)
    for run, answered in zip(study.runs, index.answered, strict=True):
        for right, outcome in zip(answered.right, run.outcomes.outcomes, strict=True):
            expected = dict(zip(outcome.ids.to_pylist(), outcome.credit > 0.5, strict=True))
            assert dict(zip(index.ids, right.tolist(), strict=True)) == expected
    flips = [index.flips[place] for place in index.order]
    assert flips == sorted(flips, reverse=True)


@given(st.lists(st.booleans(), max_size=40))
def test_bits_are_packed_from_the_highest(items: list[bool]) -> None:
    stored = b64decode(packed(np.array(items, dtype=np.bool_)))
    assert [
        bool(stored[place >> 3] >> (7 - (place & 7)) & 1) for place in range(len(items))
    ] == items


def test_several_items_are_explained_as_each_alone(
    runs: list[Path],
) -> None:
    run = open_run(runs[0])
    ids = run.evidence.items["item"].to_pylist()
    chosen = [ids[7], ids[0], ids[11]]
    explained = [explain(run, item) for item in chosen]
    assert repr(explain_items(run, chosen)) == repr(explained)
    with pytest.raises(UsageError, match="has no item 'nowhere'"):
        explain_items(run, [ids[0], "nowhere"])


def requests_of(batch: dict[str, Any], item: int, run: int) -> list[dict[str, Any]]:
    """The requests of an item with rows of its columns, as the page's script makes them."""
    answered = batch["items"][item]["runs"][str(run)]
    columns = answered["scored"]
    rows = []
    for place, answer in enumerate(columns["answer"]):
        row = {name: column[place] for name, column in columns.items()}
        row["tokens"] = []
        if answer is not None:
            lines, logprobs = batch["answers"][answer]
            row["tokens"] = [
                (batch["lines"][line], logprob)
                for line, logprob in zip(lines, logprobs, strict=True)
            ]
        rows.append(row)
    requests = []
    for asked in answered["asked"]:
        requests.append(asked | {"scored": rows[: asked["scored"]]})
        del rows[: asked["scored"]]
    assert not rows
    return requests


def test_the_columns_of_items_in_full_hold_every_continuation(study: Study) -> None:
    (items,) = study_items(study)
    chosen = items.index.order[:3]
    ids = [items.index.ids[place] for place in chosen]
    ((places, read),) = details(study, items, chosen)
    assert places == chosen
    batch = read.data(ids)
    first = read.data(ids[:1])
    assert (len(first["items"]), len(batch["items"])) == (1, len(ids))
    assert len(first["answers"]) < len(batch["answers"])
    assert len(first["lines"]) <= len(batch["lines"])
    contexts, nulls = set(), 0
    for number, run in enumerate(study.runs):
        for item, explained in enumerate(explain_items(open_run(run.folder), ids)):
            made = requests_of(batch, item, number)
            for asked, shown in zip(explained.asked, made, strict=True):
                assert asked.context is not None
                text = "".join(batch["texts"][piece] for piece in shown["context"])
                assert text == shown_text(asked.context)
                contexts.add(text)
                beside = [scored for group in asked.beside for scored in group]
                for scored, row in zip(beside, shown["scored"], strict=True):
                    assert row["total"] == digits(scored.total)
                    tokens = [
                        (shown_line(token.text), digits(token.logprob)) for token in scored.tokens
                    ]
                    assert row["tokens"] == tokens
                    if scored.generated is None:
                        assert row["choice"] == scored.choice
                        assert batch["lines"][row["text"]] == shown_line(scored.continuation or "")
                    if scored.null is not None:
                        nulls += 1
                        assert batch["lines"][row["null"]] == shown_line(scored.null)
            decided = batch["items"][item]["runs"][str(number)]["decided"]
            for decision, row in zip(explained.decided, decided, strict=True):
                scores = decision.scores and list(map(digits, decision.scores))
                tie = 2 if decision.tied else int(bool(decision.near_tie))
                assert row[1:] == [decision.prediction, digits(decision.credit), tie, scores]
    assert len(contexts) > len(chosen)
    assert nulls


def digits(value: float | None) -> float | None:
    """A number in three digits."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.3g}")


@settings(max_examples=50)
@given(st.lists(st.none() | st.floats() | st.floats(-100, 100), max_size=5))
@example([-0.4625, 1.005, 999.5, 0.0, -0.0625, 1e9])
def test_columns_are_rounded_as_each_number(values: list[float | None]) -> None:
    numbers = [None if value is None else float(value) for value in values]
    assert rounded(numbers) == list(map(digits, numbers))


def test_the_named_protocols_are_those_of_the_run() -> None:
    for names in (
        ["mmlu"],
        list(PROTOCOLS),
        ["mmlu/harness-v0:sum"],
        ["mmlu/original", "options/cloze"],
    ):
        protocols = resolve(*names)
        assert resolve(*selectors(protocols)) == {
            name: protocols[name] for name in resolve(*selectors(protocols))
        }
        assert set(resolve(*selectors(protocols))) == set(protocols)
    assert selectors(resolve("mmlu")) == ["mmlu"]


def test_the_downloads_hold_every_row(study: Study, page: Page) -> None:
    files = {
        about["download"]: about["href"] for tag, about in page.elements if about.get("download")
    }
    assert set(files) == {"choicewise.csv", "choicewise.parquet"}
    contents = {
        name: b64decode((address or "").split("base64,")[1]) for name, address in files.items()
    }
    assert len(contents["choicewise.csv"].splitlines()) == len(study.rows) + 1
    table = pq.read_table(BytesIO(contents["choicewise.parquet"]))
    assert table["value"].to_pylist() == [row.value for row in study.rows]
    assert table["signature"].to_pylist() == [row.identity.signature for row in study.rows]


def shown_lines(*runs: str) -> list[list[str]]:
    """The words of every command line in the section "Get this again", without the program's name."""
    section = text_of(read_study(map(Path, runs))).partition('id="again"')[2]
    blocks = re.findall(r'<pre tabindex="0">(.*?)</pre>', section, re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in unescape(block).splitlines()]
    assert {line[0] for line in lines} == {"choicewise"}
    return [words for _, *words in lines]


def reported(folder: str) -> list[str]:
    """The rows of the report, in an order of their own."""
    return sorted(map(str, json.loads(choicewise("report", "--json", folder, code=0).stdout)))


@pytest.mark.costly("four runs")
def test_the_shown_lines_give_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapping, a changed axis, bad items, and a second line that adds protocols: one line has all of them."""
    monkeypatch.chdir(tmp_path)
    rows = (
        {"ask": f"Q{n}?", "a": "x", "b": "y", "c": "z", "d": "w", "key": 1 + n % 3}
        for n in range(9)
    )
    Path("quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mapping = (
        'question = "ask"\nchoices = ["a", "b", "c", "d"]\nanswer = "key"\nanswer_is = "number"\n'
    )
    Path("my mapping.toml").write_text(mapping)
    asked = ["run", "--model", "fake:hash", "--data", "quiz.jsonl"]
    more = [
        "--limit",
        "7",
        "--mapping",
        "my mapping.toml",
        "--on-bad-item",
        "skip",
        "--out",
        "first",
    ]
    names = "mmlu/cloze@shots=0", "options/quoted-sum-forward@shots=0"
    for name in (*names, names[0]):
        choicewise(*asked, *more[:4], "--on-bad-item=skip", *more[-2:], "--protocol", name, code=0)
    (words,) = shown_lines("first")
    assert [words[:5], words[-8:]] == [asked, more]
    before = reported("first")
    assert len(before) > 9
    choicewise(*words[:-1], "second", code=0)
    assert reported("second") == before


@pytest.mark.costly("four runs")
def test_each_run_of_a_sweep_has_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_mmlu(Path("one"), questions=3), "--data", write_mmlu(Path("two"), questions=4)
    asked = ["--data", *data, "--protocol", "mmlu/original@shots=2", "--out", "all"]
    choicewise("sweep", "--model", "fake:hash", *asked, code=0)
    for name in ("one", "two"):
        (words,) = shown_lines(f"all/fake-hash/{name}")
        assert words[:5] == ["run", "--model", "fake:hash", "--data", name]
        choicewise(*words[:-1], f"second/{name}", code=0)
    assert sorted(reported("second/one") + reported("second/two")) == reported("all")


@pytest.mark.costly("three pages")
def test_where_a_line_is_not_known_one_is_made_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python asked first or last has no line; one that an earlier version began keeps the words of its own."""
    monkeypatch.chdir(tmp_path)
    asked = {
        "model": "fake:hash",
        "data": write_mmlu(Path("data"), questions=1),
        "protocols": ["mmlu/original"],
    }
    line = [
        "run",
        "--model",
        "fake:hash",
        "--data",
        "data",
        "--protocol",
        "mmlu/helm",
        "--out",
        "run",
    ]
    choicewise(*line, code=0)
    evaluate(**asked, out="run")
    (words,) = shown_lines("run")
    assert words[:5] == ["run", "--model", "fake:hash", "--data", "data"]
    assert {*words} >= {"mmlu/helm", "mmlu/original"}
    choicewise(*line, code=0)  # the same line adds nothing, so that nothing changes
    assert shown_lines("run") == [words]
    evaluate(**asked, out="called", limit=1)
    made_of_it = "run --model fake:hash --data data --protocol mmlu/original --limit 1 --out called"
    assert shown_lines("called") == [made_of_it.split()]
    rows = "Question,A,B,C,D,Answer\n" + "".join(f"Q{number}?,x,y,z,w,A\n" for number in range(3))
    Path("guessed.csv").write_text(rows)
    line = [
        "run",
        "--model",
        "fake:hash",
        "--data",
        "guessed.csv",
        "--protocol",
        "mmlu/original@shots=0",
    ]
    for part in ("1/2", "2/2"):
        choicewise(*line, "--shard", part, "--out", part[0], code=0)
    choicewise("merge", "1", "2", "--out", "merged", code=0)
    assert shown_lines("merged") == [[*line, "--out", "1"]]
    evaluate(**asked | {"data": "guessed.csv", "protocols": ["mmlu/helm@shots=0"]}, out="merged")
    (words,) = shown_lines("merged")
    assert "--mapping" not in words


@pytest.mark.costly("a run and its page")
def test_captions_and_notes_say_what_is_there(tmp_path: Path, written: str) -> None:
    """Published numbers are of MMLU's own protocols; other runs have no hollow marks, and no caption about them."""
    assert "Hollow: published" in written
    other = write_run(tmp_path / "other", protocols=["options/cloze@shots=0"], questions=1)
    assert "Hollow: published" not in text_of(read_study([other]))
    assert not re.search(r"23 of 47", written)
    assert "Cells: protocols" in written


@pytest.mark.costly("the bundle of the charts is made")
def test_the_script_that_draws_charts_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = renderer_script.__wrapped__()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert renderer_script.__wrapped__() == made
    assert "window.vegaEmbed" in made
