"""Inspect's rules for letters, against what four of its releases read in the same texts."""

import json

import pytest

from choicewise.scoring.extract import RULES
from tests.paths import GOLDENS

READ = json.loads((GOLDENS / "logs" / "rules.json").read_text(encoding="utf-8"))
"""Release → text → the letter that its own solver reads among four options (make_logs_rules.py)."""


@pytest.mark.parametrize("release", READ)
def test_a_rule_reads_what_its_release_reads(release: str) -> None:
    rule = RULES[f"inspect@{release}"]
    assert {text: rule(text, "ABCD") for text in READ[release]} == READ[release]


def test_every_rule_has_its_release() -> None:
    assert {f"inspect@{release}" for release in READ} == {name for name in RULES if name.startswith("inspect@")}


def test_the_releases_differ() -> None:
    letters = [tuple(read.values()) for read in READ.values()]
    assert len(set(letters)) == len(letters) == 4
