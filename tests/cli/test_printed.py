"""What commands print, whole, as a reader sees it: a change shows as a diff of ``__snapshots__`` to be reviewed.

``make test PYTEST=--snapshot-update`` writes what they print now.
"""

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from choicewise.cli.listing import all_commands
from tests.helpers.commands import choicewise
from tests.helpers.study import Study

ALL = "hash", "oracle", "anti"
FAKE = "--model", "fake:hash"
NOWHERE = "--data", "nowhere", "--protocol", "mmlu/original", "--out", "nowhere"
LINES = {
    "nothing": (),
    "run": ("run", *FAKE, "--data", "data", "--protocol", "mmlu/original", "--dry-run"),
    "report": ("report", "hash"),
    "report of three": ("report", *ALL),
    "report of one protocol": ("report", "oracle", "--protocol", "mmlu/cloze:sum"),
    "report of all protocols": ("report", "hash", "--all"),
    "ranks": ("report", *ALL, "--protocol", "mmlu/original"),
    "subjects": ("report", "hash", "--by", "subjects", "--protocol", "mmlu/original"),
    "multiverse": ("report", *ALL, "multiverse"),
    "agreement": ("report", *ALL, "agreement"),
    "effects": ("report", "hash", "effects"),
    "distribution": ("report", "hash", "distribution", "--protocol", "mmlu/original"),
    "compare": ("compare", "hash", "oracle", "--protocol", "mmlu/original"),
    "compare protocols": (
        "compare",
        "hash",
        "--protocol",
        "mmlu/original",
        "--protocol",
        "mmlu/cloze:sum",
    ),
    "compare a run with itself": ("compare", "hash", "hash", "--protocol", "mmlu/original"),
    "compare published": ("compare", "hash", "mmlu/original", "--value", "0.5"),
    "explain": ("explain", "hash", "--item", "tides/test/0"),
    "explain tokens": (
        "explain",
        "hash",
        "--item",
        "tides/test/0",
        "--protocol",
        "mmlu/cloze:sum",
        "--tokens",
    ),
    "ladder": ("ladder", "mmlu/original", "mmlu/cloze:sum", "hash"),
    "prompts": (
        "prompts",
        "--data",
        "data",
        "--protocol",
        "mmlu/original",
        "--subject",
        "tides",
        "--limit",
        "2",
    ),
    "score": (
        "score",
        *FAKE,
        "--context",
        "Two and two is",
        "--choice",
        " four",
        "--choice",
        " five",
    ),
    "check": ("check", *FAKE),
    "data": ("data", "data"),
    "doctor": ("doctor", "hash"),
    "protocols show": ("protocols", "show", "mmlu/original"),
    "protocols WORD": ("protocols", "hellaswag", "HARNESS"),
    "protocols diff": ("protocols", "diff", "mmlu/original", "mmlu/harness-v1"),
    "protocols diff as JSON": (
        "protocols",
        "diff",
        "mmlu/original",
        "mmlu/lighteval-original",
        "--json",
    ),
    "protocols that do not differ": ("protocols", "diff", "mmlu/helm", "mmlu/helm"),
    "no such folder": ("report", "nowhere"),
    "no such file": ("data", "nowhere.jsonl"),
    "no such data": ("prompts", "--data", "nowhere", "--protocol", "mmlu"),
    "no such model": ("score", "--model", "nowhere", "--context", "a", "--choice", "b"),
    "no such option": ("report", "hash", "--subjets"),
    "no option like it": ("run", "--qqq", "x"),
    "no such protocol": ("protocols", "show", "mmlu/orginal"),
    "no such command": ("nonsense",),
    "no folder": ("report",),
    "no place for the run": ("run", *FAKE, *NOWHERE[:4]),
    "no limit": ("run", *FAKE, *NOWHERE, "--limit", "0"),
    "a limit below 0": ("run", *FAKE, *NOWHERE, "--limit", "-1"),
    "an empty choice": ("score", *FAKE, "--context", "a", "--choice", ""),
    "no log": ("import", "nowhere", "--out", "imported"),
    "no such format": ("export", "hash", "--format", "nothing", "--out", "exported"),
    "no board": ("work", "nowhere"),
}


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("name", LINES)
def test_what_it_prints(
    name: str, study: Study, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.data.parent)
    told = choicewise(*LINES[name], COLUMNS="100")
    assert shown(told.code, told.stdout, told.stderr, study) == snapshot


@pytest.mark.parametrize("name", [name for name in all_commands() if name != "lm-eval"])
def test_what_its_help_says(name: str, snapshot: SnapshotAssertion) -> None:
    assert choicewise(name, "--help", code=0, COLUMNS="100").stdout == snapshot


def shown(code: int, stdout: str, stderr: str, study: Study) -> str:
    """What a command ended with, without what differs between machines: folders, seconds, speeds, versions."""
    text = f"code {code}\n{stdout}" + (f"--- stderr\n{stderr}" if stderr else "")
    text = text.replace(str(study.data.parent), "STUDY")
    text = re.sub(r"\b[\d.,]+ (ms|s|tokens/s|items/s)\b", r"N \1", text)
    return "\n".join(line.rstrip() for line in text.splitlines())
