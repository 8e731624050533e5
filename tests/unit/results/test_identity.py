"""The short ids agree exactly where the same was measured: texts, tokens, model."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, open_run
from choicewise.models.fake import HashModel
from choicewise.records import SelfCheckRecord
from choicewise.report.tables import legend, report_tables
from choicewise.results.number import Number
from choicewise.results.rows import run_id, text_id, token_id
from choicewise.results.run import Run
from choicewise.scoring.portion import row_bytes
from tests.helpers.hash_models import MergingModel
from tests.helpers.mmlu_data import set_block_size, write_mmlu
from tests.helpers.printed import printed
from tests.helpers.study import Study

NAMES = [
    "mmlu/original",
    "mmlu/harness-v1",
    "mmlu/harness-v0.4",
    "mmlu/cloze:sum",
    "mmlu/cloze:pmi-answer",
]


@pytest.fixture(scope="module")
def data(study: Study) -> Path:
    return study.data


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(
        model=HashModel(), data=data, protocols=NAMES, out=tmp_path_factory.mktemp("run") / "one"
    )


def by_name(run: Run) -> dict[str, Number]:
    return {row.identity.protocol: row for row in run.rows()}


def ids(run: Run) -> dict[str, tuple[str, ...]]:
    return {
        row.identity.protocol: (row.identity.id, row.identity.i, row.identity.t)
        for row in run.rows()
    }


def test_every_row_says_what_was_measured(run: Run) -> None:
    for row in run.rows():
        content = row.as_json()
        assert (
            row.identity.data[:2],
            row.identity.id[:2],
            row.identity.i[:2],
            row.identity.t[:2],
            row.identity.r[:2],
        ) == (
            "#D",
            "#P",
            "#I",
            "#T",
            "#R",
        )
        assert {content[name][1:].isalnum() for name in ("data", "id", "i", "t", "r")} == {True}
        assert content["chance"] == row.chance == row.diagnosis.chance == 0.25
        assert content["family"] in ("letters", "cloze")


def test_tables_have_the_ids(run: Run) -> None:
    rows = run.rows()
    for width in (160, 80):
        shown = printed(*report_tables(rows, ids=True, width=width), width=width)
        title, head, *lines = (line.split() for line in shown)
        assert title[:5] == [
            "fake:hash",
            rows[0].identity.r,
            "on",
            rows[0].identity.dataset,
            f"{rows[0].identity.data},",
        ]
        assert ("ids" in head) == (width == 160)  # where there is no room they stand under the name
        for row in rows:
            assert any(
                [row.identity.id, row.identity.i, row.identity.t]
                == [word for word in line if word[0] == "#"]
                for line in lines
            )
    assert "tokens asked and scored" in " ".join(legend(rows, ids=True))


def test_protocols_share_what_they_ask(run: Run) -> None:
    rows = by_name(run)
    early, late, plain, corrected = (rows[name] for name in NAMES[1:])
    assert (
        early.identity.i == late.identity.i
    )  # the same texts, and only one of the two puts BOS before them
    assert early.identity.id != late.identity.id
    assert plain.identity.i == corrected.identity.i
    assert plain.identity.t != corrected.identity.t  # which also asks after a null context
    assert len({row.identity.r for row in rows.values()}) == 1
    assert len({row.identity.i for row in rows.values()}) == 3


def test_weights_and_their_type_change_the_run_alone_and_another_tokenizer_the_tokens(
    run: Run, data: Path, tmp_path: Path
) -> None:
    model = HashModel(seed=5)
    model.dtype = "bfloat16"
    other = evaluate(model=model, data=data, protocols=NAMES, out=tmp_path / "other")
    assert ids(other) == ids(run)
    assert by_name(other)[NAMES[0]].identity.r != by_name(run)[NAMES[0]].identity.r
    merging = by_name(
        evaluate(
            model=MergingModel(b" a", b"th"), data=data, protocols=NAMES, out=tmp_path / "merging"
        )
    )
    for name, row in by_name(run).items():
        assert (merging[name].identity.id, merging[name].identity.i) == (
            row.identity.id,
            row.identity.i,
        )
        assert merging[name].identity.t != row.identity.t


def test_what_else_a_run_asked_changes_nothing(run: Run, data: Path, tmp_path: Path) -> None:
    for name in NAMES[::2]:
        alone = evaluate(model=HashModel(), data=data, protocols=[name], out=tmp_path / name)
        assert ids(alone) == {name: ids(run)[name]}


@pytest.mark.costly("every protocol of three families is evaluated twice")
def test_blocks_and_interruptions_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"model": HashModel(), "data": write_mmlu(tmp_path / "data", questions=3)}
    families = ["mmlu", "options", "compat"]
    whole = ids(evaluate(**asked, protocols=families, out=tmp_path / "whole"))
    set_block_size(monkeypatch, 3)
    evaluate(**asked, protocols=families[:1], out=tmp_path / "parts")
    set_block_size(monkeypatch, 2)
    assert ids(evaluate(**asked, protocols=families, out=tmp_path / "parts")) == whole


def test_the_tokens_are_those_of_every_question(run: Run) -> None:
    """The plain reference: the keys of the questions, item by item, in the order of the items' ids."""
    for name, protocol in run.protocols.items():
        digest = hashlib.sha256()
        for null in dict.fromkeys((None, protocol.null)):
            digest.update(b"".join(_item_digests(run, protocol.prompt_digest, null)))
        assert by_name(run)[name].identity.t == f"#T{digest.hexdigest()[:6]}"


def _item_digests(run: Run, prompt: str, null: str | None) -> list[bytes]:
    spans = [
        row
        for row in run.tables.spans.to_pylist()
        if (row["prompt"], row["null"]) == (prompt, null)
    ]
    digests = []
    for item in sorted({row["item"] for row in spans}):
        own = sorted(
            (row for row in spans if row["item"] == item),
            key=lambda row: (row["choice"], row["part"]),
        )
        keys = ([row[name] or "-" for name in ("key", "before", "after")] for row in own)
        asked = [
            f"{row['choice']} {row['part']} {' '.join(each)}"
            for row, each in zip(own, keys, strict=True)
        ]
        digests.append(hashlib.blake2b(packed([item]) + packed(asked), digest_size=16).digest())
    return digests


def packed(texts: list[str] | None) -> bytes:
    """What :func:`row_bytes` makes of a row of texts, one after the other."""
    if texts is None:
        return (-1).to_bytes(4, "little", signed=True)
    encoded = [text.encode() for text in texts]
    return b"".join([*(len(each).to_bytes(4, "little") for each in [encoded, *encoded]), *encoded])


def test_proposals_and_views_are_texts_as_well(data: Path, tmp_path: Path) -> None:
    names = ["options/permuted-cyclic", "options/permuted-full", "options/yes-no"]
    run = evaluate(model=HashModel(), data=data, protocols=names, out=tmp_path / "run")
    cyclic, _, asked = run.protocols.values()
    recipes = {"given": replace(cyclic, views="given", calibration="none")}
    recipes["other"] = replace(asked, proposal=asked.proposal.replace("correct", "right"))
    other = evaluate(model=HashModel(), data=data, protocols=recipes, out=tmp_path / "other")
    found = [row.identity.i for row in (*run.rows(), *other.rows())]
    assert len(set(found)) == len(found)


def test_the_ids_of_some_items_are_those_of_a_run_of_them(
    run: Run, data: Path, tmp_path: Path
) -> None:
    few = evaluate(model=HashModel(), data=data, protocols=NAMES, out=tmp_path / "few", limit=2)
    run.rows()
    for name, row in by_name(few).items():
        evidence, protocol = run.measurements[name].evidence, run.protocols[name]
        places = np.array(
            [place for place, item in enumerate(evidence.ids) if item[-2:] in ("/0", "/1")]
        )
        assert text_id(evidence, protocol, places) == row.identity.i
        assert token_id(evidence, protocol, places[::-1]) == row.identity.t
        assert text_id(evidence, protocol) != row.identity.i


def test_the_run_id_is_of_all_but_names_and_time(run: Run) -> None:
    manifest = open_run(run.folder).manifest
    before = run_id(manifest)
    assert (
        run_id(replace(manifest, model=replace(manifest.model, name="other"), complete=False))
        == before
    )
    check = SelfCheckRecord(
        rung="flex", cost="one pass", difference=0.0, floor=0.0, noise=0.0, depth=10
    )
    changes = {"model": replace(manifest.model, dtype="float16"), "versions": {}}
    changes |= {"engine": replace(manifest.engine, selfcheck=check)}
    for name, value in changes.items():
        assert run_id(replace(manifest, **{name: value})) != before


@given(
    st.lists(st.none() | st.lists(st.text(max_size=3), max_size=3), max_size=5), st.integers(0, 5)
)
def test_rows_of_lists_are_the_same_bytes_only_where_they_are_equal(
    rows: list[list[str] | None], start: int
) -> None:
    column = pa.chunked_array([pa.array(rows, pa.list_(pa.string())).slice(start)])
    assert row_bytes(column).to_pylist() == list(map(packed, rows[start:]))


TEXT = st.text(max_size=3)


@given(
    st.lists(st.none() | TEXT, max_size=5),
    st.integers(0, 5),
    st.lists(st.integers(0, 9), max_size=3),
)
def test_rows_of_texts_and_of_numbers_likewise(
    rows: list[str | None], start: int, numbers: list[int]
) -> None:
    column = pa.chunked_array([pa.array(rows, pa.string()).slice(start)])
    assert row_bytes(column).to_pylist() == [
        packed(None if text is None else [text]) for text in rows[start:]
    ]
    lists = pa.chunked_array([pa.array([numbers, None, []], pa.list_(pa.int16()))])
    numbered = row_bytes(lists).to_pylist()
    expected = (
        np.array([len(numbers), *[2] * len(numbers)], "<i4").tobytes()
        + np.array(numbers, "<i2").tobytes()
    )
    assert numbered == [expected, b"\xff" * 4, bytes(4)]
