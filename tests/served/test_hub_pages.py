"""Where models and data came from on the Hub, on the page, on the board and in their downloads."""

from __future__ import annotations

import csv
from base64 import b64decode
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from choicewise.board.library import read_snapshot
from choicewise.board.pages import write_board
from choicewise.board.records import View, board_csv
from choicewise.page.document import write_page
from choicewise.page.study import downloads, read_study
from choicewise.records import DatasetRecord, ModelRecord
from choicewise.results.rows import run_id
from choicewise.store.folder import read_manifest
from tests.helpers.board import change, write_run

COMMIT = "0123456789abcdef" * 2 + "01234567"
MODEL, DATA = f"org/model@{COMMIT}", f"org/sums:hard@{COMMIT}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "runs" / "run", protocols=["mmlu/original"])
    return change(
        folder,
        lambda manifest: replace(
            manifest,
            model=replace(manifest.model, name="org/model", source=MODEL),
            dataset=replace(manifest.dataset, name="org/sums:hard", source=DATA),
            job={"models": [{"name": "org/model"}], "data": [{"path": "org/sums:hard"}]},
        ),
    )


def test_the_page_says_the_commits_and_asks_for_them_again(run: Path, tmp_path: Path) -> None:
    write_page([run], tmp_path / "page.html")
    text = unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"choicewise run --model {MODEL} --data {DATA} --protocol" in text
    assert f"from the Hub: <code>{MODEL}</code>" in text
    assert f"from the Hub: <code>{DATA}</code>" in text
    file, *_ = downloads(read_study([run]))
    rows = [*csv.DictReader(b64decode(file.address.partition(",")[2]).decode().splitlines())]
    assert {(row["model_source"], row["dataset_source"]) for row in rows} == {(MODEL, DATA)}


@pytest.mark.costly("servers and boards on loopback")
def test_the_board_says_them(run: Path, tmp_path: Path) -> None:
    snapshot = read_snapshot([run.parent])
    pages = [
        page.read_text(encoding="utf-8") for page in write_board(snapshot, tmp_path / "board").parent.rglob("*.html")
    ]
    assert any(f"choicewise run --model {MODEL} --data {DATA}" in unescape(text) for text in pages)
    rows = [*csv.DictReader(board_csv(snapshot, View()).splitlines())]
    assert {(row["model_source"], row["dataset_source"]) for row in rows} == {(MODEL, DATA)}


def test_what_to_ask_for_again() -> None:
    model = ModelRecord("org/model", "0", "float32", "cpu", 9)
    assert model.asked == "org/model"
    assert replace(model, source=MODEL).asked == MODEL
    assert replace(model, name="org/model+lora", source=MODEL).asked == "org/model+lora"
    assert DatasetRecord("folder", "0").asked == "folder"
    assert DatasetRecord("org/sums:hard", "0", source=DATA).asked == DATA
    assert DatasetRecord("arc-easy", "0", source=f"allenai/ai2_arc@{COMMIT}").asked == ""


def test_where_files_came_from_does_not_change_what_was_computed(run: Path) -> None:
    manifest = read_manifest(run)
    local = replace(manifest, model=replace(manifest.model, name="folder", source=""))
    assert run_id(manifest) == run_id(local)
