"""What is read of the logs that other tools wrote: names, texts, numbers and settings, and that verdicts follow."""

from dataclasses import asdict, astuple, replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from choicewise.interchange.logs.files import recognise
from choicewise.interchange.logs.import_log import read_logs, read_state
from tests.helpers.golden_logs import LOGS, golden

NAMES = ["helm", "inspect/finished.json", "inspect/one-failed.json"]
NAMES += ["lighteval/until-0.9", "lighteval/from-0.4", "lighteval/since-0.10"]


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_log_is_read_and_its_verdicts_follow(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = golden(name, tmp_path)
    logs = read_logs([path])
    assert {(log.tool, log.task): read_state(log).notes for log in logs if read_state(log).notes} == {}
    lines = [line for log in logs for line in (asdict(replace(log, items=())), *map(astuple, log.items))]
    assert "\n".join(map(str, (recognise(path), *lines))) == snapshot


def test_a_file_alone_is_recognised_as_its_folder_is(tmp_path: Path) -> None:
    assert recognise(next(golden("helm", tmp_path).rglob("scenario_state.json"))) == "helm"
    assert recognise(next(golden("lighteval/until-0.9", tmp_path).rglob("*town_pmi*.parquet"))) == "lighteval"


def test_archives_of_inspect_say_what_its_json_says() -> None:
    logs = [read_logs([LOGS / "inspect" / f"finished.{ending}"])[0] for ending in ("eval", "json")]
    assert recognise(LOGS / "inspect" / "finished.eval") == "inspect-log"
    one, other = (replace(log, items=list(log.items), settings={**log.settings, "created": ""}) for log in logs)
    assert one == other


def test_cells_of_lighteval_that_are_text_say_what_columns_say(tmp_path: Path) -> None:
    (text,) = read_logs([golden("lighteval/from-0.4", tmp_path)])
    columns = {log.task: log for log in read_logs([golden("lighteval/until-0.9", tmp_path)])}
    bells = [item for item in columns["leaderboard|town|5|0"].items if item.subject == "bells"]
    assert [(item.choices, item.recorded) for item in text.items] == [(item.choices, item.recorded) for item in bells]
