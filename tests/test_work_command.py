"""``choicewise work`` as people call it, beside a board that ``choicewise serve`` runs, and workers that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("stamina")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from choicewise.board.client import BoardFailed, OutOfReach
from choicewise.cli import invoke
from choicewise.cli import serve as work_command
from choicewise.errors import UsageError
from choicewise.records import MANIFEST
from choicewise.results.run import open_run
from choicewise.store.manifest import read_manifest

from .submission_board import TOKEN, Board, board

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}
COMMAND = [sys.executable, "-m", "choicewise"]

SLOW = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from choicewise.board.client import BoardAddress
from choicewise.board.client import BoardClient
from choicewise.board.worker import Workplace
from choicewise.board.worker import Worker

@contextmanager
def shown(title):
    yield lambda done, total: time.sleep(0.2)

client = BoardClient(BoardAddress.parse(sys.argv[1]), sys.argv[2])
Worker(client, Workplace(Path(sys.argv[3]), shown=shown, every=0.05)).work(once=True)
"""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setenv("CHOICEWISE_WORK_TOKEN", TOKEN)
    with board() as made:
        yield made


def test_what_was_done_is_said(queue: Board, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue.submit("fake:hash")
    queue.submit("bundled:nothing")
    assert invoke(["work", queue.url, "--once", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1] == "1 done, 1 failed"
    assert TOKEN not in told.err
    assert invoke(["work", queue.url, "--once", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "nothing waited"
    queue.fault = lambda method, path: (401, {"error": "no"}, {})
    with pytest.raises(BoardFailed, match="refuses the work token"):
        invoke(["work", queue.url, "--once", "--out", str(tmp_path)])
    assert "nothing waited" not in capsys.readouterr().err


def test_work_over_two_processes_is_the_same(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    assert invoke(["work", queue.url, "--once", "--out", str(tmp_path / "out"), "--workers", "2"]) == 0
    [manifest] = queue.write(entry, tmp_path / "sent").rglob(MANIFEST)
    assert read_manifest(manifest.parent).complete


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there = work_command.find_spec
    monkeypatch.setattr(work_command, "find_spec", lambda name: None if name == "httpx2" else there(name))
    with pytest.raises(UsageError, match=r"needs httpx2: pip install 'choicewise\[work\]'"):
        invoke(["work", "http://127.0.0.1:1"])


def test_wrong_use_is_told_before_anything_is_asked(queue: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="must start with http"):
        invoke(["work", "localhost:8470"])
    with pytest.raises(UsageError, match="login or a key"):
        invoke(["work", "http://127.0.0.1:8470/?token=secret-of-somebody"])
    monkeypatch.delenv("CHOICEWISE_WORK_TOKEN")
    with pytest.raises(UsageError, match="needs the board's work token"):
        invoke(["work", queue.url])
    assert queue.requests == []


def test_a_wrong_token_and_what_is_no_board(queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BoardFailed, match="does not answer as a board does"):
        invoke(["work", queue.url + "/elsewhere", "--once", "--out", str(tmp_path)])
    monkeypatch.setenv("CHOICEWISE_WORK_TOKEN", "some-other-token-of-mine")
    with pytest.raises(BoardFailed, match="refuses the work token"):
        invoke(["work", queue.url, "--out", str(tmp_path)])


def test_an_unencrypted_way_is_noted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CHOICEWISE_WORK_TOKEN", TOKEN)
    monkeypatch.setattr("choicewise.board.worker._BRIEF", 0.0)
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(OutOfReach):
        invoke(["work", "http://board.invalid:8470", "--once"])
    assert "board.invalid is not encrypted" in capsys.readouterr().err


def test_a_worker_that_is_killed_has_its_work_continued(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from choicewise.models.fake import HashModel

    entry = queue.submit("fake:hash")
    killed = subprocess.Popen([sys.executable, "-c", SLOW, queue.url, TOKEN, str(tmp_path / "one")], env=ENVIRONMENT)
    wait_for(lambda: sum(path.endswith("spans.parquet") for path in entry.files) >= 2, killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    with queue.lock:
        sent = dict(entry.files)
        entry.until = 0.0
    assert entry.state == "leased"
    [half] = queue.write(entry, tmp_path / "half").rglob(MANIFEST)
    known = {*open_run(half.parent).observations()["key"].to_pylist()}
    blocks = len(read_manifest(half.parent).blocks)
    asked: list[str] = []
    answer = HashModel.answer

    def counted(self: HashModel, questions: Any) -> Any:
        asked.extend(question.key for question in questions)
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", counted)
    assert invoke(["work", queue.url, "--once", "--out", str(tmp_path / "two")]) == 0
    [manifest] = queue.write(entry, tmp_path / "whole").rglob(MANIFEST)
    run = open_run(manifest.parent)
    keys = run.observations()["key"].to_pylist()
    assert 2 <= blocks < len(read_manifest(manifest.parent).blocks)
    assert len(keys) == len({*keys})
    assert sorted(asked) == sorted({*keys} - known)
    tables = {path: sha for path, sha in sent.items() if path.endswith(".parquet")}
    assert tables.items() <= entry.files.items()
    assert (entry.state, entry.finished, entry.attempts) == ("done", 1, 2)


@pytest.mark.parametrize(
    ("number", "background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_ctrl_c_and_the_end_of_a_cluster_s_hour_give_back(
    number: int, background: bool, queue: Board, tmp_path: Path
) -> None:
    """In the background of a script, as `choicewise work URL &`, the shell has SIGINT ignored."""
    queue.ask |= {"protocols": ["mmlu"], "limit": 60}
    entry = queue.submit("bundled:merrow-byte")
    line = [*COMMAND, "work", queue.url, "--out", str(tmp_path)]
    environment = ENVIRONMENT | {"CHOICEWISE_WORK_TOKEN": TOKEN}
    if background:
        line = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *line]
    worker = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(entry.files), worker)
    worker.send_signal(number)
    told = worker.communicate(timeout=120)[1]
    assert (worker.returncode, entry.state, entry.reason) == (0, "waiting", "its worker was ended"), told
    assert told.splitlines()[-1] == "1 given back"
    assert list(tmp_path.iterdir()) == []


def wait_for(happened: Any, process: subprocess.Popen[Any], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < ends
        time.sleep(0.02)


@contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """The address of a real board of ``folder``."""
    folder.mkdir()
    line = [*COMMAND, "serve", str(folder), "--submissions", "--protocol", "mmlu/cloze", "--data", "bundled:merrowick"]
    tokens = {"CHOICEWISE_WORK_TOKEN": TOKEN, "CHOICEWISE_SUBMIT_TOKEN": TOKEN[::-1]}
    started = subprocess.Popen(
        [*line, "--limit", "1", *more], env=ENVIRONMENT | tokens, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        yield started.stdout.readline().strip()
    finally:
        started.terminate()
        started.communicate(timeout=60)


def ask(url: str, body: dict[str, str] | None = None) -> tuple[int, Any]:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN[::-1]}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=60) as response:
        text = response.read().decode()
        return response.status, json.loads(text) if "json" in response.headers["Content-Type"] else text


def test_two_workers_do_six_submissions_of_a_real_board_each_once(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("jinja2")
    with served(tmp_path / "board", "--allow", "fake:*", "--allow", "bundled:*") as url:
        wanted = [("fake:hash", ""), ("fake:oracle", ""), ("fake:anti-oracle", ""), ("fake:hash", "float32")]
        wanted += [("fake:oracle", "float32"), ("bundled:merrow-byte", "")]
        answers = [ask(f"{url}submissions", {"model": model, "dtype": dtype}) for model, dtype in wanted]
        assert [status for status, _ in answers] == [201] * 6
        status, again = ask(f"{url}submissions", {"model": "fake:hash"})
        assert (status, again["id"]) == (200, answers[0][1]["id"])
        line = [*COMMAND, "work", url, "--once", "--out", str(tmp_path / "work")]
        environment = ENVIRONMENT | {"CHOICEWISE_WORK_TOKEN": TOKEN}
        workers = [subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told: list[str] = []
        threads = [threading.Thread(target=lambda each=each: told.append(each.communicate()[1])) for each in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert [worker.returncode for worker in workers] == [0, 0], told
        records = ask(f"{url}submissions.json")[1]["submissions"]
        assert [(record["state"], record["attempts"]) for record in records] == [("done", 1)] * 6
        taken = [line for text in told for line in text.splitlines() if line.startswith("takes ")]
        assert len(taken) == len({*taken}) == 6
        runs = [path.parent for path in (tmp_path / "board").rglob(MANIFEST)]
        assert len(runs) == 6
        assert all(read_manifest(run).complete for run in runs)
        ends = time.monotonic() + 60
        while "merrow-byte" not in ask(url)[1]:
            assert time.monotonic() < ends, "its numbers do not appear"
            time.sleep(0.2)
