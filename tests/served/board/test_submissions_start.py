"""`choicewise serve DIR --submissions`: its options, its tokens, and what it refuses before it serves anything."""

import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.board.access import SUBMIT, stored_token
from choicewise.extensions.board.commands import Submitting, open_submissions, parse_size
from choicewise.extensions.board.queue import SubmissionService


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """None from outside."""
    for variable in (SUBMIT, "CHOICEWISE_TOKEN"):
        monkeypatch.delenv(variable, raising=False)


def opened(board: Path, **given: Any) -> tuple[SubmissionService, str]:
    """What a command with these options opens, and the token."""
    service, token = open_submissions(board, True, Submitting(**given))
    service.close()
    return service, token


@pytest.mark.costly("a command as a process")
def test_it_begins_asks_what_the_demo_asks_and_ends(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "choicewise", "serve", str(tmp_path / "runs"), "--submissions"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        page = urllib.request.urlopen(f"{address}submissions", timeout=60).read().decode()
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    asked = (
        "<code>mmlu</code> on <code>bundled:merrowick</code>",
        "<code>bundled:*</code>, <code>*/*</code>",
    )
    assert [words for words in (*asked, "at most 20 GB") if words not in page] == []
    assert f" {address}submissions;" in said
    assert f"`choicewise work {tmp_path}/runs`" in said
    file = tmp_path / "runs" / ".submissions" / "submit.token"
    assert str(file) in said
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert len(token) >= 32
    assert token not in said
    assert token not in page
    assert (tmp_path / "runs" / ".submissions").stat().st_mode & 0o777 == 0o700


def test_tokens_are_kept_for_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opened(tmp_path)[1] == opened(tmp_path)[1]
    assert "was written to" in (said := capsys.readouterr().err)
    assert f" is in {tmp_path}/.submissions/submit.token" in said


def test_the_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("submit-" * 4)
    assert opened(tmp_path, submit_token_file=tmp_path / "token")[1] == "submit-" * 4
    assert not (tmp_path / ".submissions" / "submit.token").exists()
    monkeypatch.setenv(SUBMIT, "short")
    with pytest.raises(UsageError, match=f"variable {SUBMIT} has 5 characters"):
        opened(tmp_path)


def test_a_kept_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token, new = stored_token(file)
    assert new
    assert stored_token(file) == (token, False)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="replaced by others; delete"):
        stored_token(file)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="replaced by others"):
        stored_token(file)
    assert not (tmp_path / "elsewhere").exists()


def test_a_public_board_needs_a_token_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICEWISE_TOKEN", "r" * 20)
    with pytest.raises(
        UsageError, match="with --submit-token-file, or set CHOICEWISE_SUBMIT_TOKEN"
    ):
        invoke(["serve", str(tmp_path), "--submissions", "--host", "0.0.0.0"])
    assert not (tmp_path / ".submissions" / "submit.token").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--allow", "org/*"], "--allow does not apply"),
        (["--protocol", "mmlu", "--largest", "1GB"], "--protocol and --largest do not"),
        (["--submissions", "--protocol", "nothing/at-all"], "nothing/at-all"),
        (["--submissions", "--largest", "many"], "--largest is 'many'; write it as 20GB"),
        (["--submissions", "--submit-token-file", "nowhere"], "nowhere can't be read"),
    ],
)
def test_wrong_use_is_said_before_anything_is_served(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(ChoicewiseError, match=re.escape(words)):
        invoke(["serve", str(tmp_path), *arguments])


def test_sizes() -> None:
    sizes = {"20GB": 20 * 10**9, "1.5 tb": 15 * 10**11, "500M": 5 * 10**8, "7": 7, "2k": 2000}
    assert {text: parse_size(text) for text in sizes} == sizes
    for text in ("", "GB", "-1GB", "1e9", "0", "1 PB", "9999999999", "1.2.3", "nan"):
        with pytest.raises(UsageError, match="write it as 20GB"):
            parse_size(text)


def test_options_reach_the_service_and_workers(tmp_path: Path) -> None:
    asked = {"protocol": ("mmlu/helm",), "data": ("bundled:merrowick",), "limit": 3}
    service, _ = opened(
        tmp_path, **asked, allow=("good/*",), largest="3GB", queue=tmp_path / "elsewhere"
    )
    joined = SubmissionService.join(tmp_path, tmp_path / "elsewhere")
    joined.close()
    assert (joined.asked, service.asked.protocols) == (service.asked, ("mmlu/helm",))
    assert (service.asked.data, service.asked.limit) == (("bundled:merrowick",), 3)
    assert (service.asked.policy.allow, service.asked.policy.largest) == (("good/*",), 3 * 10**9)
    assert (tmp_path / "elsewhere" / "queue.sqlite3").exists()
    assert not (tmp_path / ".submissions").exists()


@pytest.mark.parametrize("harm", ["later", "damaged", "locked"])
def test_a_queue_that_can_not_be_used_ends_the_command(tmp_path: Path, harm: str) -> None:
    opened(tmp_path)
    path = tmp_path / ".submissions" / "queue.sqlite3"
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE" if harm == "locked" else "PRAGMA user_version = 9")
    if harm != "locked":
        held.close()
    if harm == "damaged":
        path.write_bytes(b"not a queue" * 100)
    before = path.read_bytes()
    words = {
        "later": "has version 9",
        "damaged": "is damaged",
        "locked": "another process holds it",
    }
    with pytest.raises(StoreError, match=words[harm]):
        invoke(["serve", str(tmp_path), "--submissions"])
    assert path.read_bytes() == before
    held.close()


def test_places_that_can_not_take_runs_end_the_command(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "submitted").symlink_to(tmp_path / "elsewhere")
    for words in ("is a link", "is no folder"):
        with pytest.raises(StoreError, match=words):
            invoke(["serve", str(tmp_path / "board"), "--submissions"])
        (tmp_path / "board" / "submitted").unlink()
        (tmp_path / "board" / "submitted").write_text("x")
