"""Every metric under every protocol that can have it: a number or a reason, and no crash."""

from pathlib import Path

import pytest

from choicewise.protocols.metrics import METRICS
from tests.helpers.commands import choicewise

FAMILIES = ("mmlu", "options", "decision/sglang-1-no-chat")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One question of each subject under all protocols of some families."""
    out = tmp_path_factory.mktemp("metrics") / "run"
    asked = [word for family in FAMILIES for word in ("--protocol", family)]
    choicewise(
        "run",
        "--model",
        "fake:hash",
        "--data",
        "bundled:merrowick",
        "--limit",
        1,
        *asked,
        "--out",
        out,
        code=0,
    )
    return out


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_a_number_or_is_refused_in_words(metric: str, run: Path) -> None:
    told = choicewise("report", run, "--all", "--metric", metric)
    assert told.code in (0, 2)
    assert (f"protocols has the metric {metric}" in told.stderr) == (told.code == 2)
