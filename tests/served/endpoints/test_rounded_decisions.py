"""A run of an endpoint that rounds: bounds in the place of numbers, in the report's text and JSON."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import choicewise
from tests.helpers.decision_server import Asked, behave, serving_decisions

GOLD = {"w": 0.7, "x": 0.2, "y": 0.1, "z": 0.0}
METRICS = "acc,kl,log-score,brier-soft"


def told(asked: Asked) -> list[float]:
    """Never so sure that a probability that is needed is rounded to 0."""
    drawn = random.Random(asked.state)
    weights = [0.05 + drawn.random() for _ in asked.keys]
    return [weight / sum(weights) for weight in weights]


def sure(asked: Asked) -> list[float]:
    return [0.998, 0.001, 0.0006, 0.0004] if "case 1" in asked.state else told(asked)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs on the same eight cases: exact probabilities, rounded ones, and rounded ones with a sure answer."""
    folder = tmp_path_factory.mktemp("rounded")
    question = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(GOLD)}
    cases = [
        {"id": f"c{n}", "state": f"case {n}", "questions": {"q": question}}
        | {"gold": {"q": {"label": "w", "probabilities": GOLD}}}
        for n in range(8)
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    for name, (function, *behaviours) in {
        "exact": (told,),
        "rounded": (told, "two decimals"),
        "sure": (sure, "two decimals"),
    }.items():
        with serving_decisions(function) as server:
            behave(server, *behaviours)
            model = f"decisions:{server.url}#decider"
            about = "--data", folder / "cases.jsonl", "--out", folder / name
            asked = (
                "--protocol",
                "decision/endpoint:choice",
                "--protocol",
                "decision/endpoint:choice@metric=kl",
            )
            choicewise("run", "--model", model, *about, *asked, code=0)
    return folder


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    report = choicewise("report", folder, "--json", "--metric", METRICS, code=0)
    return {row["metric"]: row for row in json.loads(report.stdout)}


@pytest.mark.costly("three runs of an endpoint and their reports")
def test_a_rounded_kl_is_two_bounds_around_the_exact_one(runs: Path) -> None:
    exact, rounded, sure = (rows(runs / name) for name in ("exact", "rounded", "sure"))
    for metric in ("kl", "log-score"):
        assert exact[metric]["rounding"] is None
        row = rounded[metric]
        assert (row["value"], row["ci_low"], row["rank_low"]) == (None, None, None)
        assert row["low"] < exact[metric]["value"] < row["high"] < row["low"] + 0.5
        assert row["rounding"]["identified"]
        assert (row["rounding"]["step"], row["rounding"]["floor"]) == (0.01, 0)
        assert row["low"] <= row["rounding"]["with_floor"] <= row["high"]
        assert "rounded" in row["flags"]
    assert sure["kl"]["high"] is None
    assert (sure["kl"]["rounding"]["identified"], sure["kl"]["rounding"]["floor"]) == (False, 1)
    assert sure["log-score"]["rounding"]["floor"] == 0  # the right option has nearly all
    for metric in ("brier-soft", "acc"):
        row = rounded[metric]
        assert row["value"] == pytest.approx(exact[metric]["value"], abs=0.05)
        assert row["low"] <= row["value"] <= row["high"]
        assert "rounded" not in row["flags"]
    assert rounded["acc"]["near_ties"] is not None


@pytest.mark.costly("reports of three runs")
def test_the_printed_report_says_what_is_not_identified(runs: Path) -> None:
    first = choicewise("report", runs / "sure", code=0).stdout
    (line,) = (line for line in first.splitlines() if line.split()[:1] == ["kl"])
    assert "– not identified nats" in line
    printed = choicewise("report", runs / "sure", "--ids", "--metric", METRICS, code=0).stdout
    assert "not identified" in printed
    assert "rounded, 1 at probability 0" in printed
    held = choicewise("report", runs / "sure", "endpoint", code=0).stdout
    assert "what the answers claim" in held
    assert "only known within bounds" in " ".join(held.split())
    assert "two bounds alone" not in choicewise("report", runs / "exact", "endpoint", code=0).stdout


def test_a_rounded_kl_is_not_compared(runs: Path) -> None:
    kl, tv = (f"decision/endpoint:choice@metric={metric}" for metric in ("kl", "tv"))
    refused = choicewise("compare", runs / "exact", runs / "rounded", "--protocol", kl)
    assert refused.code == 2
    assert "its endpoint rounds to 0.01, which leaves kl open" in refused.stderr
    choicewise("compare", runs / "exact", runs / "rounded", "--protocol", tv, code=0)


@pytest.mark.costly("a report of two runs")
def test_ranks_by_bounds_that_overlap_are_open(runs: Path) -> None:
    report = choicewise("report", runs / "exact", runs / "sure", "--json", "--metric", "kl", code=0)
    own = [row for row in json.loads(report.stdout) if row["metric"] == "kl"]
    assert [(row["rank_low"], row["rank_high"]) for row in own] == [(1, 2), (1, 2)]


@pytest.mark.costly("exports of two runs")
@pytest.mark.parametrize("form", ["harness", "every-eval-ever", "csv", "markdown"])
def test_no_export_has_a_floor_in_the_place_of_a_number(
    form: str, runs: Path, tmp_path: Path
) -> None:
    known = {
        "exact": rows(runs / "exact")["kl"]["value"],
        "sure": rows(runs / "sure")["kl"]["rounding"]["with_floor"],
    }
    for name, number in known.items():
        out = tmp_path / name
        choicewise("export", runs / name, "--format", form, "--out", out, "--metric", "kl", code=0)
        files = [
            file for file in [out, *out.rglob("*")] if file.is_file() and "samples" not in file.name
        ]
        text = re.sub('""with_floor"": [^,}]*', "", "".join(file.read_text() for file in files))
        assert (f"{number:.3f}" in text or f"{number:.3f}"[:-1] in text) == (name == "exact")


@pytest.mark.costly("ladders of two runs")
def test_no_ladder_leads_over_a_number_that_rounding_leaves_open(runs: Path) -> None:
    ends = [f"decision/endpoint:choice@metric=kl{more}" for more in ("", ",temperature=2")]
    choicewise("ladder", *ends, runs / "exact", code=0)
    refused = choicewise("ladder", *ends, runs / "rounded")
    assert refused.code == 2
    assert "its endpoint rounds to 0.01, which leaves kl open" in refused.stderr
