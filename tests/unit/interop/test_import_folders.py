"""What becomes of the folder of an import: nothing is done twice or mixed, and one broken log loses no other."""

import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from choicewise import evaluate, import_log, open_run
from choicewise.errors import ChoicewiseError, DataError, StoreError, UsageError
from choicewise.extensions.interop.logs import files
from choicewise.extensions.interop.logs.checks import checked_item
from choicewise.extensions.interop.logs.files import ZSTANDARD, parts, recognise, unpacked, whole
from choicewise.extensions.interop.logs.import_log import read_logs, read_state, run_of_log
from choicewise.logs import Log, LoggedChoice, LoggedItem
from choicewise.store.folder import RunFolder, read_sweep, write_manifest
from choicewise.store.tables import file_record
from tests.helpers.harness_logs import sums, table_rows, texts
from tests.helpers.imported_runs import LOGS, golden, one_run, values, write_csv
from tests.helpers.study import Study

BLOCK_ITEMS = "choicewise.extensions.interop.logs.import_log.BLOCK_ITEMS"


def test_an_import_done_before_changes_nothing_and_other_runs_are_refused(
    study: Study, tmp_path: Path
) -> None:
    path, out = write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run"
    run = one_run(path, out)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    import_log(path, out)
    assert before == {file: file.stat().st_mtime_ns for file in before}
    with pytest.raises(StoreError, match="another log"):
        import_log(write_csv(tmp_path / "u.csv", table_rows(7)), out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files"):
        import_log(path, tmp_path / "full")
    assert values(run) == values(open_run(out))
    with pytest.raises(StoreError, match="computed here"):
        import_log(path, study.hash)
    with pytest.raises(StoreError, match="import from a table"):
        evaluate(model="fake:hash", data=study.data, protocols=["mmlu/original"], out=out)


def test_a_killed_import_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLOCK_ITEMS, 2)
    path, out = write_csv(tmp_path / "t.csv", table_rows(7)), tmp_path / "run"
    whole = one_run(path, tmp_path / "whole")
    add, blocks = RunFolder.add_block, iter(range(2))

    def killed(*arguments: Any) -> None:
        if next(blocks, None) is None:
            raise KeyboardInterrupt
        add(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add_block", killed)
        with pytest.raises(KeyboardInterrupt):
            import_log(path, out)
    assert not open_run(out).manifest.complete
    run = one_run(path, out)
    assert (values(run), len(run.manifest.blocks)) == (values(whole), 4)


def test_mixed_subjects_make_blocks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(
        tmp_path / "t.csv", table_rows(11, subject=lambda item, choice: f"s{item % 3}")
    )
    scores = []
    for size in (3, 1000):
        monkeypatch.setattr(BLOCK_ITEMS, size)
        scores.append(one_run(path, tmp_path / f"{size}").scores("log:sum").sort_by("item"))
    assert scores[0].equals(scores[1])


def test_two_logs_of_the_same_and_logs_of_another_format_are_refused(tmp_path: Path) -> None:
    paths = [write_csv(tmp_path / name, table_rows()) for name in ("a.csv", "b.csv")]
    with pytest.raises(UsageError, match=r"two of the logs \(a.csv and b.csv\).* same on log"):
        import_log(paths, tmp_path / "runs", model="same")
    assert read_logs(paths[:1])[0].tool == "a table"
    with pytest.raises(ChoicewiseError):
        read_logs(paths[:1], "harness")


def test_a_log_may_be_made_by_hand(tmp_path: Path) -> None:
    choices = tuple(
        LoggedChoice(loglikelihood=value, text=f" {text}")
        for value, text in zip(sums(0), texts(0), strict=True)
    )
    item = LoggedItem(id="1", gold=(0,), choices=choices, context="Q:")
    log = Log(tool="a tool", model="m", task="t", items=[item])
    run_of_log(log, tmp_path / "run")
    assert values(open_run(tmp_path / "run"))["sum"][1] == 1
    with pytest.raises(DataError, match="holds no items"):
        read_state(replace(log, items=[]))
    with pytest.raises(DataError, match="has no choices"):
        checked_item(replace(item, choices=()), "a tool")
    with pytest.raises(DataError, match="item '1' twice"):
        read_state(replace(log, items=[item, item]))


def test_folders_without_the_later_columns_are_read(study: Study, tmp_path: Path) -> None:
    """Observations had no counts and flags before other tools' logs could have them."""
    run = evaluate(
        model="fake:hash", data=study.data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run"
    )
    expected, blocks = values(run), []
    for block in run.manifest.blocks:
        path = run.folder / "blocks" / block.name / "observations.parquet"
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["token_count", "greedy"]), path)
        blocks.append(replace(block, files={**block.files, path.name: file_record(path)}))
    write_manifest(run.folder, replace(run.manifest, blocks=tuple(blocks), complete=False))
    assert values(open_run(run.folder)) == expected
    assert open_run(run.folder).observations()["token_count"].null_count > 0
    more = evaluate(
        model="fake:hash", data=study.data, protocols=["mmlu/cloze:token_mean"], out=run.folder
    )
    assert values(more)["sum"][1] == 12


def logs_with_a_broken_one(kind: str, folder: Path) -> Path | list[Path]:
    if kind == "table":
        rows = {"a": table_rows(), "b": [row | {"loglikelihood": 1.0} for row in table_rows()]}
        return [write_csv(folder / f"{name}.csv", own) for name, own in rows.items()]
    if kind == "inspect":
        (folder / "logs").mkdir()
        content = (LOGS / "inspect" / "finished.eval").read_bytes()
        for name, end in (("town", None), ("cut", -300)):
            (folder / "logs" / f"{name}.eval").write_bytes(content[:end])
        return folder / "logs"
    suite = golden("helm" if kind == "helm" else "lighteval/since-0.10", folder)
    file = min(suite.rglob("scenario_state.json" if kind == "helm" else "details_*.parquet"))
    broken = (
        file if kind == "helm" else file.with_name(file.name.replace("details_", "details_other"))
    )
    broken.write_bytes(file.read_bytes()[:-200])
    return suite


BROKEN = {"table": "b on log", "inspect": "cut.eval", "helm": "scenario_state.json"}
BROKEN |= {"lighteval": "Parquet"}


@pytest.mark.parametrize("kind", BROKEN)
def test_one_broken_log_is_named_and_leaves_the_others(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"(?s){BROKEN[kind]}.*the others are in"):
        import_log(logs_with_a_broken_one(kind, tmp_path), tmp_path / "runs")
    cells = read_sweep(tmp_path / "runs").cells
    for cell in cells:
        assert bool(cell.failure) != cell.done
        assert not cell.done or open_run(tmp_path / "runs" / cell.folder).manifest.complete
    done = [cell.done for cell in cells]
    assert (done.count(False), any(done)) == (1, True)
    named = {"table": [("a", True), ("b", False)], "inspect": [("cut", False), ("town", True)]}
    if kind in named:
        assert (
            sorted((cell.model if kind == "table" else cell.dataset, cell.done) for cell in cells)
            == named[kind]
        )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(), VALUES),
    st.lists(VALUES),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_parts_are_the_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: dict[str, Any],
    elements: list[Any],
    chunk: int,
    indent: int | None,
) -> None:
    monkeypatch.setattr(files, "_CHUNK", chunk)
    members.pop("samples", None)
    file = tmp_path / "log.json"
    file.write_text(json.dumps({**members, "samples": elements}, indent=indent), encoding="utf-8")
    read = list(parts(file, "samples"))
    assert dict(each for each in read if each[0] != "samples") == members
    assert [value for key, value in read if key == "samples"] == elements
    file.write_text(json.dumps(elements, indent=indent), encoding="utf-8")
    assert [value for _, value in parts(file, "samples")] == elements == whole(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ends too early"),
        (b'{"samples": [1, 2', "ends too early"),
        (b'{"samples": [{"a": 1}, {"a": 2', "delimiter"),
        (b'{"samples": [1 2]}', "a comma is expected"),
        (b'{"eval": "x', "Unterminated"),
        (b'{"eval" 1}', "a key is expected"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"eval": "\xff"}', "not UTF-8"),
        (b"7", "begins with no object"),
    ],
)
def test_broken_files_say_where(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "log.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"(?s)log.json .* JSON after character .*{reason}"):
        list(parts(file, "samples"))


def test_a_part_has_a_bound_and_an_absent_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST", 100)
    monkeypatch.setattr(files, "_CHUNK", 10)
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"samples": ["x" * 1000]}), encoding="utf-8")
    with pytest.raises(DataError, match="more than 100 characters"):
        list(parts(file, "samples"))
    with pytest.raises(DataError, match="none.json can't be read"):
        list(parts(tmp_path / "none.json", "samples"))


# Archives

TEXT = b"a sample " * 1000


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def zstandard(path: Path, name: str, content: bytes) -> Path:
    """An archive with one member as Inspect packs it, which Python's own module can't write before 3.14."""
    compressed = pa.Codec("zstd").compress(content, asbytes=True)
    archive(path, {name: compressed}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    checksum = zipfile.crc32(content)  # type: ignore[attr-defined]
    for start, method, sizes in ((0, 8, 14), (data.index(b"PK\x01\x02"), 10, 16)):
        struct.pack_into("<H", data, start + method, ZSTANDARD)
        struct.pack_into("<III", data, start + sizes, checksum, len(compressed), len(content))
    path.write_bytes(bytes(data))
    return path


def both(folder: Path, name: str, content: bytes) -> list[Path]:
    """Archives with one member, packed in each of the ways."""
    return [
        archive(folder / "deflate.zip", {name: content}),
        zstandard(folder / "zstd.zip", name, content),
    ]


def test_members_are_read_whichever_way_they_are_packed(tmp_path: Path) -> None:
    for path in both(tmp_path, "samples/a.json", TEXT):
        with unpacked(path) as members:
            assert (members.names, members.read("samples/a.json")) == (("samples/a.json",), TEXT)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 1 << 12)
    monkeypatch.setattr(files, "LARGEST", 1 << 16)
    for path in both(tmp_path, "a", bytes(1 << 20)):
        with (
            unpacked(path) as members,
            pytest.raises(DataError, match="a unpacks to more .* bytes"),
        ):
            members.read("a")


def stored(folder: Path, members: str, change: Callable[[bytearray, int], object]) -> Path:
    """An archive that is not packed, changed where its directory begins."""
    path = archive(folder / "log.zip", dict.fromkeys(members, TEXT), zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    change(data, data.index(b"PK\x01\x02"))
    path.write_bytes(bytes(data))
    return path


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    path = stored(
        tmp_path, "ab", lambda data, place: struct.pack_into("<I", data, place + 20, 100_000)
    )
    with pytest.raises(DataError, match="overlapping members"), unpacked(path):
        pass


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = stored(
        tmp_path, "a", lambda data, place: data.__setitem__(place + 8, data[place + 8] | 1)
    )
    with unpacked(path) as members, pytest.raises(DataError, match="a is encrypted"):
        members.read("a")


def test_damage_is_named(tmp_path: Path) -> None:
    path = stored(tmp_path, "a", lambda data, _: data.__setitem__(60, data[60] ^ 1))
    with (
        unpacked(path) as members,
        pytest.raises(DataError, match="log.zip: a .*copy the log again"),
    ):
        members.read("a")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="not a zip archive"), unpacked(path):
        pass
    cut = zstandard(tmp_path / "cut.zip", "a", TEXT)
    content = bytearray(cut.read_bytes())
    content[40] ^= 0xFF
    cut.write_bytes(bytes(content))
    with (
        unpacked(cut) as members,
        pytest.raises(DataError, match="a (can't be unpacked|is damaged)"),
    ):
        members.read("a")


NAMES = ["helm", "inspect/finished.json", "inspect/one-failed.json"]
NAMES += ["lighteval/until-0.9", "lighteval/from-0.4", "lighteval/since-0.10"]


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_log_is_read_and_its_verdicts_follow(
    name: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    path = golden(name, tmp_path)
    logs = read_logs([path])
    assert {
        (log.tool, log.task): read_state(log).notes for log in logs if read_state(log).notes
    } == {}
    lines: list[object] = []
    for log in logs:
        values = asdict(replace(log, items=()))
        del values["verdicts"]  # functions
        lines += [values, *map(astuple, log.items)]
    assert "\n".join(map(str, (recognise(path).name, *lines))) == snapshot


def test_a_file_alone_is_recognised_as_its_folder_is_and_an_archive_says_what_json_says(
    tmp_path: Path,
) -> None:
    assert recognise(next(golden("helm", tmp_path).rglob("scenario_state.json"))).name == "helm"
    assert (
        recognise(next(golden("lighteval/until-0.9", tmp_path).rglob("*town_pmi*.parquet"))).name
        == "lighteval"
    )
    assert recognise(LOGS / "inspect" / "finished.eval").name == "inspect-log"
    logs = [read_logs([LOGS / "inspect" / f"finished.{ending}"])[0] for ending in ("eval", "json")]
    one, other = (
        replace(log, items=list(log.items), settings={**log.settings, "created": ""})
        for log in logs
    )
    assert one == other


def test_cells_of_lighteval_that_are_text_say_what_columns_say(tmp_path: Path) -> None:
    (text,) = read_logs([golden("lighteval/from-0.4", tmp_path)])
    columns = {log.task: log for log in read_logs([golden("lighteval/until-0.9", tmp_path)])}
    bells = [item for item in columns["leaderboard|town|5|0"].items if item.subject == "bells"]
    assert [(item.choices, item.recorded) for item in text.items] == [
        (item.choices, item.recorded) for item in bells
    ]


# The same with any one value changed

HELM = next(LOGS.glob("helm/*failed*"))
JSON_VALUES: list[Any] = [
    None,
    True,
    -1,
    2.5,
    float("nan"),
    "",
    "text",
    [],
    ["text"],
    {},
    {"key": "text"},
    [[1]],
]
"""What a value becomes."""

FORTY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def places(value: Any) -> Iterator[list[Any]]:
    """The paths to every value in a JSON value."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield [key]
        yield from ([key, *rest] for rest in places(inner))


def changed(value: Any, data: st.DataObject) -> Any:
    """The same with another value in one place."""
    path = data.draw(st.sampled_from(list(places(value))))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(st.sampled_from(JSON_VALUES))
    return value


def read_whole(path: Path, format: str | None = None) -> None:
    with suppress(DataError):
        for log in read_logs([path], format):
            read_state(log)


@FORTY
@given(data=st.data())
@pytest.mark.parametrize("name", ["inspect/one-failed.json", "inspect/finished.json"])
def test_a_changed_log_of_inspect_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, name: str
) -> None:
    log = changed(json.loads((LOGS / name).read_text(encoding="utf-8")), data)
    (tmp_path / "changed.json").write_text(
        json.dumps({"version": 2, "status": "success", **log}), encoding="utf-8"
    )
    read_whole(tmp_path / "changed.json", "inspect-log")


@FORTY
@given(data=st.data(), wrong=st.sampled_from(["scenario_state.json", "run_spec.json"]))
def test_a_changed_run_of_helm_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, wrong: str
) -> None:
    for file in ("scenario_state.json", "run_spec.json"):
        content = json.loads((HELM / file).read_text(encoding="utf-8"))
        value = changed(content, data) if file == wrong else content
        (tmp_path / file).write_text(json.dumps(value), encoding="utf-8")
    read_whole(tmp_path)


@FORTY
@given(data=st.data())
@pytest.mark.parametrize("layout", ["until-0.9", "since-0.10", "from-0.4"])
def test_changed_details_of_lighteval_are_read_or_refused(
    tmp_path: Path, data: st.DataObject, layout: str
) -> None:
    source = next(
        file for file in (LOGS / "lighteval" / layout).rglob("*.parquet") if "text" not in file.name
    )
    try:
        table = pa.Table.from_pylist(changed(pq.read_table(source).to_pylist(), data))
        pq.write_table(table, tmp_path / "details_changed.parquet")
    except (pa.ArrowException, AttributeError, TypeError, ValueError):  # a column has one type
        return
    read_whole(tmp_path)
