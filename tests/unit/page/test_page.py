"""The page of several runs: what it holds, that nothing in it does harm, what it says of runs that are not whole."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.cli.commands import invoke
from choicewise.errors import StoreError, UsageError
from choicewise.page.charts import lanes as ladder_chart
from choicewise.page.document import Content, document, inside_items, write_page
from choicewise.page.embed import is_address
from choicewise.page.item_views import Texts, index_items, item_detail, packed
from choicewise.page.sections import pair_data, steps
from choicewise.page.study import make_study, pairs, read_study, selectors, turned
from choicewise.protocols.catalogue import resolve
from choicewise.report.findings import sentences
from choicewise.results.compare import comparisons
from choicewise.results.explain import explain, explain_items
from choicewise.results.finding import finding
from choicewise.results.ladder import ladder
from choicewise.results.multiverse import multiverse
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.jsonio import page_json as json_text
from choicewise.util.text import percent
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.page_runs import HOSTILE, PROTOCOLS, Page, renamed, write_hostile_run, write_run

pytestmark = pytest.mark.costly("whole pages")

pytest.importorskip("vl_convert", reason="pages need choicewise[page]")

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models on the same questions."""
    folder = tmp_path_factory.mktemp("runs")
    models = {"hash": "fake:hash", "oracle": "fake:oracle", "anti": "fake:anti-oracle"}
    return [write_run(folder / name, model) for name, model in models.items()]


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


def page_of(*runs: Path) -> Page:
    content = Content(read_study(runs))
    return Page(document(content, "21 Nov 2026", inside_items(content)))


def test_every_number_stands_in_a_table_and_in_the_chart_behind_it(runs: list[Path], page: Page) -> None:
    for place, run in enumerate(read_study(runs).runs):
        kept = data_of(page, f"run-{place}")
        shown = {row[0]: row[2] for row in kept["numbers"]}
        assert shown == {row.protocol: percent(row.value) for row in run.rows}
        drawn = {each["protocol"]: each["value"] for each in kept["strip"]["values"] if each["kind"] == "number"}
        assert drawn == pytest.approx({row.protocol: row.value for row in run.rows}, abs=1e-5)
    first = [row for row in page.tables["All numbers"] if len(row) > 1][1:]
    assert first == data_of(page, "run-0")["numbers"]


def test_all_sections_are_there_in_their_order(runs: list[Path], page: Page) -> None:
    ids = [about["id"] for tag, about in page.elements if tag == "section"]
    assert ids == ["numbers", "why", "order", "pair", "items", "protocols", "warnings", "again"]
    assert " ".join(sentences(finding(read_study(runs).rows))) in page.text


def test_only_our_scripts_and_style_may_run_and_nothing_is_fetched(written: str, page: Page) -> None:
    (policy,) = [about["content"] for tag, about in page.elements if about.get("http-equiv")]
    assert policy is not None
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    run = [text for about, text in page.scripts if "type" not in about]
    assert len(run) == 2
    hashes = {f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in [*run, *page.styles]}
    assert allowed == hashes
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'none'" in policy
    assert not any(name == "style" or name.startswith("on") for _, about in page.elements for name in about)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base", "form action"}
    addresses = {about[name] or "" for _, about in page.elements for name in ("src", "href") if about.get(name)}
    assert {address.split(":")[0] for address in addresses if ":" in address} <= {"https", "data"}
    assert not re.search(r"url\(|@import", "".join(page.styles))


def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path, page: Page) -> None:
    shown = page_of(write_hostile_run(tmp_path / "run"))
    assert [about for about, _ in shown.scripts if "type" not in about] == [{}, {}]
    assert not any(tag in ("img", "b") and "onerror" in about for tag, about in shown.elements)
    assert not any((about.get("href") or "").startswith("javascript:") for _, about in shown.elements)
    everything = "".join(text for about, text in shown.scripts if about.get("type") == "application/json")
    assert not HIDDEN.search(shown.text + everything)
    assert "</script>" not in everything
    index = data_of(shown, "items-0")
    assert len(index["ids"]) == len(HOSTILE)
    assert any("\\u202e" in question for question in index["questions"])
    assert max(map(len, index["questions"])) < 100
    assert "</script><script>window.harm = 1</script>\\u202e\\x1b[31m" in shown.text


def test_addresses_that_a_browser_would_run_are_no_links() -> None:
    assert is_address("https://example.org/a")
    for text in ("javascript:alert(1)", " https://x", "data:text/html,x", "HTTPS://x\n", "https://a b", "//x"):
        assert not is_address(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(),
        lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=4), each, max_size=4),
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
    run = write_run(tmp_path / "run", protocols=["mmlu/original"], subjects=("tides",), questions=1)
    shown = page_of(run)
    assert "There are no two different numbers" in shown.text
    assert "An order takes two models" in shown.text
    assert len(data_of(shown, "items-0")["ids"]) == 1
    assert [row[0] for row in shown.tables["All numbers"]] == ["protocol", "mmlu/original"]


def test_numbers_without_an_item_are_said_to_be_none(runs: list[Path]) -> None:
    summary = summarize(runs[0])
    nothing = [replace(each, values=np.array([np.nan]), codes=each.codes * 0) for each in summary.outcomes.outcomes]
    rows = tuple(replace(row, value=np.nan, se=np.nan, ci_low=np.nan, ci_high=np.nan, n=0) for row in summary.rows)
    empty = replace(summary, rows=rows, outcomes=replace(summary.outcomes, outcomes=tuple(nothing)))
    for study in (make_study([empty]), make_study([empty, summarize(runs[1])])):
        content = Content(study)
        shown = Page(document(content, "21 Nov 2026", inside_items(content, 1)))
        assert {row[2] for row in shown.tables["All numbers"][1:]} == {"-"}


def test_models_on_other_data_are_not_compared(runs: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", subjects=("tides",))
    study = read_study([runs[0], other])
    (pair,) = pairs(study)
    assert pair.reason.startswith("the data differ, A: data #D")
    shown = page_of(runs[0], other)
    assert "Not comparable: the data differ" in shown.text
    assert len(data_of(shown, "data")["items"]) == 2
    assert turned(pair).reason.count("#D") == 2


def test_runs_with_the_same_model_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    twins = [write_run(tmp_path / name / "same", model) for name, model in (("a", "fake:hash"), ("b", "fake:oracle"))]
    twins.append(renamed(write_run(tmp_path / "c" / "same", subjects=("tides",)), "same"))
    labels = read_study(twins).labels
    assert len(set(labels)) == 3
    assert all(label.startswith("same") for label in labels)
    assert read_study([runs[0], runs[0]]).labels == ["hash"]


def test_an_unfinished_run_is_said_to_be_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_manifest(run, replace(read_manifest(run), complete=False))
    assert "run is still being written, or was interrupted" in page_of(run).text


@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    damaged = sorted((run / "blocks").rglob("spans.parquet"))[0]
    damaged.write_bytes(b"rubbish")
    text = page_of(run).text
    assert re.search(r"run: items 1 to \d+ of \w+ \(test\) are left out, because spans.parquet of block", text)


def test_what_can_not_be_a_page_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for out, words in ((tmp_path, "is a folder"), (tmp_path / "page.pdf", "does not end in .html")):
        with pytest.raises(UsageError, match=words):
            write_page(["nowhere"], out)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't be written"):
        write_page(["nowhere"], tmp_path / "file" / "page.html")
    (tmp_path / "page.items").mkdir()
    (tmp_path / "page.items" / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="is for the items of the page and holds 1 other file"):
        write_page(["nowhere"], tmp_path / "page.html")
    with pytest.raises(StoreError):
        write_page([tmp_path / "nowhere"], tmp_path / "new.html")
    assert not (tmp_path / "new.html").exists()


def test_items_stand_in_the_page_or_beside_it(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.page.document.ROOM", 17_000)
    written = write_page(runs[:1], tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    (listed,) = data_of(page, "data")["items"]
    inside = [place for chunk in listed["chunks"] for place in chunk["ids"]]
    beside = [place for part in listed["parts"] for place in part["ids"]]
    assert 0 < len(inside) < 12
    assert sorted(inside + beside) == list(range(12))
    assert (written.inside, written.beside) == (len(inside), len(beside))
    for part in listed["parts"]:
        content = (tmp_path / "page.items" / part["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == part["sha256"]
        ids = data_of(page, "items-0")["ids"]
        assert [item["id"] for item in json.loads(content)["items"]] == [ids[place] for place in part["ids"]]
    few = write_page(runs[:1], tmp_path / "page.html", items=3)
    assert few.inside + few.beside == 3


def test_the_folder_beside_an_earlier_page_goes_with_it(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.page.document.ROOM", 17_000)
    write_page(runs[:1], tmp_path / "page.html")
    assert list((tmp_path / "page.items").iterdir())
    write_page(runs[:1], tmp_path / "page.html", items=1)
    assert not (tmp_path / "page.items").exists()


def test_pairs_are_those_of_compare(runs: list[Path]) -> None:
    study = read_study(runs)
    for pair in pairs(study):
        sides = [open_run(study.runs[place].folder) for place in (pair.left, pair.right)]
        expected = {each.left.protocol: each for each in comparisons(sides[0], sides[1], [])}
        assert [contest.protocol for contest in pair.contests] == list(expected)
        for contest in pair.contests:
            whole = expected[contest.protocol]
            assert repr(contest.difference) == repr(whole.difference)
            assert contest.test == whole.test
            assert contest.detectable == pytest.approx(whole.detectable, nan_ok=True)
        again = turned(pair)
        assert [-each.difference.value for each in again.contests] == [each.difference.value for each in pair.contests]


def test_pairs_are_corrected_as_by_the_multiverse(runs: list[Path]) -> None:
    """For the protocols that can differ, which are fewer here than all."""
    study = read_study(runs)
    duels = {(each.left, each.right): each for each in multiverse([open_run(run) for run in runs]).duels}
    for pair in pairs(study):
        duel = duels[study.runs[pair.left].manifest.model.name, study.runs[pair.right].manifest.model.name]
        assert pair.tests == len(duel.measured) < len(pair.contests)
        assert pair.ahead >= duel.significant()
        corrected = {each.protocol: each.p_holm for each in pair.contests}
        for contest in duel.measured:
            assert all(corrected[name] == contest.p_holm for name in (contest.protocol, *contest.alike))


def test_other_texts_are_not_tested(runs: list[Path]) -> None:
    study = read_study(runs[:2])
    row = study.runs[1].row_of["mmlu/original"]
    study.runs[1].row_of["mmlu/original"] = replace(row, i="#Iother0")
    (pair,) = pairs(study)
    (contest,) = (each for each in pair.contests if each.protocol == "mmlu/original")
    assert contest.other_texts
    assert math.isnan(contest.p_holm)
    told = pair_data(study, pair)
    assert told["said"].endswith("Not comparable under 1 protocol: other texts were sent.")


def test_every_way_is_the_ladder_between_its_ends(runs: list[Path]) -> None:
    run = read_study(runs).runs[0]
    known = steps(run)
    assert len(known.ways) == len(run.protocols) * (len(run.protocols) - 1)
    for start, end in list(known.ways)[::7]:
        expected = ladder_chart.ladder_values(ladder(run.outcomes, start, end))
        records = known.records(start, end)
        for record in records[1:-1]:
            del record["changes"], record["reached"]
        assert repr(records) == repr(expected)


def test_the_list_of_items_says_what_each_protocol_got_right(runs: list[Path]) -> None:
    study = read_study(runs)
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
    assert [bool(stored[place >> 3] >> (7 - (place & 7)) & 1) for place in range(len(items))] == items


def test_several_items_are_explained_as_each_alone(runs: list[Path]) -> None:
    run = open_run(runs[0])
    ids = run.evidence.items["item"].to_pylist()
    chosen = [ids[7], ids[0], ids[11]]
    assert repr(explain_items(run, chosen)) == repr([explain(run, item) for item in chosen])
    with pytest.raises(UsageError, match="has no item 'nowhere'"):
        explain_items(run, [ids[0], "nowhere"])


def test_items_in_full_show_the_tokens_after_null_contexts(runs: list[Path]) -> None:
    run = open_run(runs[0])
    explained = explain(run, run.evidence.items["item"][0].as_py())
    detail = item_detail([(0, explained)], list(run.protocols), Texts())
    scored = [each for asked in detail["runs"]["0"]["asked"] for each in asked["scored"] if "null" in each]
    expected = [each for asked in explained.asked for each in asked.scored if each.null is not None]
    assert len(scored) == len(expected) > 0
    assert all(each["tokens"] for each in scored)
    sums = sorted(sum(logprob for _, logprob in each["tokens"]) for each in scored)
    assert sums == pytest.approx(sorted(each.total for each in expected if each.total is not None), rel=0.01)


def test_the_named_protocols_are_those_of_the_run() -> None:
    for names in (["mmlu"], list(PROTOCOLS), ["mmlu/harness-v0:sum"], ["mmlu/original", "options/cloze"]):
        protocols = resolve(*names)
        assert resolve(*selectors(protocols)) == {name: protocols[name] for name in resolve(*selectors(protocols))}
        assert set(resolve(*selectors(protocols))) == set(protocols)
    assert selectors(resolve("mmlu")) == ["mmlu"]


def test_the_downloads_hold_every_row(runs: list[Path], page: Page, tmp_path: Path) -> None:
    files = {about["download"]: about["href"] for tag, about in page.elements if about.get("download")}
    assert set(files) == {"choicewise.csv", "choicewise.parquet"}
    contents = {name: b64decode((address or "").split("base64,")[1]) for name, address in files.items()}
    rows = read_study(runs).rows
    assert len(contents["choicewise.csv"].splitlines()) == len(rows) + 1
    (tmp_path / "rows.parquet").write_bytes(contents["choicewise.parquet"])
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table["value"].to_pylist() == [row.value for row in rows]
    assert table["signature"].to_pylist() == [row.signature for row in rows]


def shown_lines(*runs: Path) -> list[list[str]]:
    """The words of every command line in the section "Get this again"."""
    content = Content(read_study(runs))
    section = document(content, "21 Nov 2026", inside_items(content)).partition('id="again"')[2]
    blocks = re.findall(r'<pre tabindex="0">(.*?)</pre>', section, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in unescape(block).splitlines()]


def report_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert invoke(["report", "--json", str(folder)]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_the_shown_lines_give_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mapping, a changed axis, bad items, and a second line that adds protocols: one line has all of them."""
    monkeypatch.chdir(tmp_path)
    rows = ({"ask": f"Q{n}?", "a": "x", "b": "y", "c": "z", "d": "w", "key": 1 + n % 3} for n in range(9))
    Path("quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mapping = 'question = "ask"\nchoices = ["a", "b", "c", "d"]\nanswer = "key"\nanswer_is = "number"\n'
    Path("my mapping.toml").write_text(mapping)
    asked = ["run", "--model", "fake:hash", "--data", "quiz.jsonl", "--mapping", "my mapping.toml", "--out", "first"]
    asked += ["--limit", "7", "--on-bad-item=skip"]
    first, second = [*asked, "--protocol", "mmlu@shots=0"], [*asked, "--protocol", "options@shots=0"]
    for line in (first, second, first):
        assert invoke(line) == 0
    ((_, *words),) = shown_lines(Path("first"))
    assert [*words[:5], *words[-8:]] == [
        *("run", "--model", "fake:hash", "--data", "quiz.jsonl"),
        *("--limit", "7", "--mapping", "my mapping.toml", "--on-bad-item", "skip", "--out", "first"),
    ]
    before = report_of(Path("first"), capsys)
    assert len({row["protocol"] for row in before}) > 40
    assert invoke([*words[:-1], "again"]) == 0
    assert sorted(map(str, report_of(Path("again"), capsys))) == sorted(map(str, before))


def test_each_run_of_a_sweep_has_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, questions in (("one", 3), ("two", 4)):
        write_mmlu(Path(name), questions=questions)
    line = ["sweep", "--model", "fake:hash", "--data", "one", "--data", "two", "--protocol", "mmlu/original@shots=2"]
    assert invoke([*line, "--out", "all"]) == 0
    for name in ("one", "two"):
        ((_, *words),) = shown_lines(Path("all/fake-hash", name))
        assert words[:5] == ["run", "--model", "fake:hash", "--data", name]
        assert invoke([*words[:-1], f"again/{name}"]) == 0
    again = [row for name in ("one", "two") for row in report_of(Path("again", name), capsys)]
    assert sorted(map(str, again)) == sorted(map(str, report_of(Path("all"), capsys)))


def test_where_a_line_is_not_known_one_is_made_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python asked first or last has no line; one that an earlier version began keeps the words of its own."""
    monkeypatch.chdir(tmp_path)
    data = write_mmlu(Path("data"), questions=2)
    line = ["run", "--model", "fake:hash", "--data", "data", "--protocol", "mmlu/helm", "--out", "run"]
    assert invoke(line) == 0
    evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out="run")
    ((_, *words),) = shown_lines(Path("run"))
    assert words[:5] == ["run", "--model", "fake:hash", "--data", "data"]
    assert {*words} >= {"mmlu/helm", "mmlu/original"}
    assert invoke(line) == 0, "the same line adds nothing, so that nothing changes"
    assert shown_lines(Path("run")) == [["choicewise", *words]]
    evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out="called", limit=1)
    ((_, *words),) = shown_lines(Path("called"))
    assert words == [
        *("run", "--model", "fake:hash", "--data", "data", "--protocol", "mmlu/original", "--limit", "1"),
        *("--out", "called"),
    ]


def test_captions_and_notes_say_what_is_there(tmp_path: Path, runs: list[Path], written: str) -> None:
    """Published numbers are of MMLU's own protocols; other runs have no hollow marks, and no caption about them."""
    assert "Hollow: numbers that others published" in written
    other = tmp_path / "other"
    evaluate(model="fake:hash", data=write_mmlu(tmp_path / "data"), protocols=["options@shots=0"], out=other)
    write_page([other], tmp_path / "page.html")
    assert "Hollow: numbers" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"23 of 47", written)
    assert "under how many of the protocols that score the item it is right" in written


@pytest.mark.parametrize("name", ["v.pdf", "page.png", "rows.csv", "page.xhtml"])
def test_a_page_is_no_file_of_another_kind(tmp_path: Path, runs: list[Path], name: str) -> None:
    with pytest.raises(UsageError, match=r"a page ends in .html, and a board is written into a folder"):
        invoke(["page", str(runs[0]), "--out", str(tmp_path / name)])
    assert list(tmp_path.iterdir()) == []
