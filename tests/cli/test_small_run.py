"""What a small run takes: how often functions of ours are called until its numbers stand on the screen."""

import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tests.helpers.commands import choicewise

MOST = 9_000
"""Calls of a run of four questions under one protocol, 7,800 when this was written; once it made 58,000."""


def test_a_run_of_four_questions_makes_few_calls(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"q{i}",
            "question": f"Which is number {i}?",
            "choices": [f"thing {i}{x}" for x in "abcd"],
            "answer": i,
        }
        for i in range(4)
    ]
    data = tmp_path / "four.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if (
            event == "call"
            and "/choicewise/" in frame.f_code.co_filename
            and frame.f_code.co_name[0] != "<"
        ):
            calls += 1

    before = sys.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        line = ("run", "--model", "fake:hash", "--data", data, "--protocol", "options/cloze:sum")
        choicewise(*line, "--out", tmp_path / "run", code=0)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert 1_000 < calls < MOST
