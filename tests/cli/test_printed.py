"""What commands print, whole, as a reader sees it: a change shows as a diff of ``__snapshots__`` to be reviewed.

``make test PYTEST=--snapshot-update`` writes what they print now.
"""

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers.commands import choicewise
from tests.helpers.study import Study

ALL = "hash", "oracle", "anti"
FAKE = "--model", "fake:hash"
LINES = {
    "run": ("run", *FAKE, "--data", "data", "--protocol", "mmlu/original", "--dry-run"),
    "report": ("report", "hash"),
    "report of three": ("report", *ALL),
    "report of one protocol": ("report", "oracle", "--protocol", "mmlu/cloze:sum"),
    "report of all protocols": ("report", "hash", "--all"),
    "subjects": ("report", "hash", "--by", "subjects", "--protocol", "mmlu/original"),
    "multiverse": ("report", *ALL, "--multiverse"),
    "agreement": ("report", *ALL, "--agreement"),
    "effects": ("report", "hash", "--effects"),
    "distribution": ("report", "hash", "--distribution", "--protocol", "mmlu/original"),
    "compare": ("compare", "hash", "oracle"),
    "compare protocols": ("compare", "hash", "--protocol", "mmlu/original", "--protocol", "mmlu/cloze:sum"),
    "compare published": ("compare", "hash", "mmlu/original", "--value", "0.5"),
    "explain": ("explain", "hash", "--item", "tides/test/0"),
    "explain tokens": ("explain", "hash", "--item", "tides/test/0", "--protocol", "mmlu/cloze:sum", "--tokens"),
    "ladder": ("ladder", "mmlu/original", "mmlu/cloze:sum", "hash"),
    "prompts": ("prompts", "--data", "data", "--protocol", "mmlu/original", "--limit", "1"),
    "score": ("score", *FAKE, "--context", "Two and two is", "--choice", " four", "--choice", " five"),
    "check": ("check", *FAKE),
    "data": ("data", "data"),
    "doctor": ("doctor", "hash"),
    "protocols show": ("protocols", "show", "mmlu/original"),
    "protocols diff": ("protocols", "diff", "mmlu/original", "mmlu/harness-v1"),
    "no such folder": ("report", "nowhere"),
    "no such option": ("report", "hash", "--subjets"),
    "no such protocol": ("protocols", "show", "mmlu/orginal"),
}


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("name", LINES)
def test_what_it_prints(name: str, study: Study, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(study.data.parent)
    told = choicewise(*LINES[name], COLUMNS="100")
    assert shown(told.code, told.stdout, told.stderr, study) == snapshot


def shown(code: int, stdout: str, stderr: str, study: Study) -> str:
    """What a command ended with, without what differs between machines: folders, seconds, speeds, versions."""
    text = f"code {code}\n{stdout}" + (f"--- stderr\n{stderr}" if stderr else "")
    text = text.replace(str(study.data.parent), "STUDY")
    text = re.sub(r"\b[\d.,]+ (ms|s|tokens/s|items/s)\b", r"N \1", text)
    return "\n".join(line.rstrip() for line in text.splitlines())
