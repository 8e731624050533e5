"""Run folders of strangers: no pipe, device or file without end holds a reader, and no small file fills the memory."""

import io
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.bundled import MODELS
from choicewise.data import files as data_files
from choicewise.data.files import LONGEST_LINE
from choicewise.errors import DataError, ModelError, StoreError
from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.model import State
from choicewise.extensions.interop.logs.table import read_table as read_log
from choicewise.extensions.training.bundles.bundle import ROWS
from choicewise.extensions.training.bundles.bundle import SCHEMA as BUNDLE_SCHEMA
from choicewise.models.load import load_model
from choicewise.records import ITEM_FILE, ITEMS, MANIFEST, SPANS, SUMMARY, SWEEP
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from choicewise.results.tables import list_portions, places_of
from choicewise.store.folder import BUNDLE, read_manifest, read_sweep
from choicewise.store.tables import (
    damaged_blocks,
    file_record,
    read_batches,
    read_columns,
    read_table,
    write_items,
)
from choicewise.tokens.chat_template import ChatTemplate, Message
from choicewise.util import tables as budget
from choicewise.util.files import DOCUMENT, Refused, open_file, read_bytes
from choicewise.util.tables import open_parquet, unpacked
from tests.helpers.commands import choicewise
from tests.helpers.damage import block, relist
from tests.helpers.mmlu_data import set_block_size, write_mmlu

DAMAGED = 8
SMALLEST = min(MODELS, key=lambda folder: (folder / "model.safetensors").stat().st_size)
FRONTED: dict[str, object] = {
    "use_dictionary": False,
    "column_encoding": dict.fromkeys(["question", "A", "B", "answer"], "DELTA_BYTE_ARRAY"),
}
"""Every text is written as how much of the one before it repeats, and what follows."""


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A reader that waits for ever is interrupted, and fails."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs of several blocks each, ``whole`` and ``other``; not to be written to."""
    home = tmp_path_factory.mktemp("home")
    data = write_mmlu(home / "data", questions=6)
    with pytest.MonkeyPatch.context() as patch:
        set_block_size(patch, 4)
        for name, model in (("other", "fake:hash"), ("whole", "fake:oracle")):
            asked = ["--model", model, "--data", data, "--protocol", "mmlu/original"]
            choicewise("run", *asked, "--out", home / "runs" / name, code=0)
    return home / "runs"


@pytest.fixture
def runs(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "runs")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    os.truncate(path, 10_000_000_000)


def of_sockets(path: Path) -> None:
    path.unlink()
    with (
        socket.socket(socket.AF_UNIX) as listening,
        chdir(path.parent),
    ):  # the names of sockets are short
        listening.bind(path.name)


def bomb(path: Path) -> None:
    """A table of the same columns in some kilobytes, of which one column has 400,000 times the same long text."""
    schema, count = pq.read_schema(path), 400_000
    name = next(each for each in ("continuation", "question", "rows") if each in schema.names)
    rows = pq.read_table(path).slice(0, 1).combine_chunks().take(pa.array([0] * count))
    text = pa.DictionaryArray.from_arrays(
        pa.array([0] * count, pa.int32()), pa.array(["x" * 15_000])
    )
    rows = rows.set_column(schema.names.index(name), name, text)
    # Without the schema of Arrow, which would tell that they are a dictionary.
    with pq.ParquetWriter(path, rows.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(schema.metadata or {})
    assert path.stat().st_size < 1_000_000


HARMS = [pipe, device, sparse, of_sockets]
CASES: list[tuple[str, Callable[[Path], None]]] = [
    *((name, harm) for name in (MANIFEST, ITEM_FILE, "block", SUMMARY) for harm in HARMS),
    *((name, bomb) for name in (ITEM_FILE, "block", SUMMARY)),
]


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("name", "harm"), CASES, ids=[f"{name}-{harm.__name__}" for name, harm in CASES]
)
def test_every_reader_ends_and_reports_the_rest(
    name: str, harm: Callable[[Path], None], runs: Path
) -> None:
    run = runs / "other"
    path = block(run, 0) / "spans.parquet" if name == "block" else run / name
    harm(path)
    if harm is bomb:
        (run / SUMMARY).unlink() if name != SUMMARY else None
        relist(run, path)
    assert path.relative_to(run).as_posix() in choicewise("doctor", run, code=DAMAGED).stdout
    told = choicewise("report", runs, "--json", code=0)
    models = {row["model"] for row in json.loads(told.stdout)}
    choicewise("page", runs, "--out", runs.parent / "page.html", code=0)
    states = {each.label: each.state for each in read_snapshot([runs]).board.runs}
    assert states["runs/whole"] is State.READ
    assert str(path) in told.stderr
    if name in (MANIFEST, ITEM_FILE):
        assert models == {"fake:oracle"}
        assert name == MANIFEST or states["runs/other"] is State.UNREADABLE
        assert name in choicewise("report", run, code=6).stderr
    else:
        assert models == {"fake:hash", "fake:oracle"}
        assert states["runs/other"] is State.READ
        assert ("left out" if name == "block" else "; recomputing") in told.stderr


@pytest.mark.parametrize("harm", [*HARMS, bomb])
def test_a_changed_summary_is_computed_again(
    harm: Callable[[Path], None], whole: Path, runs: Path
) -> None:
    expected = repr(summarize(whole / "other").rows)
    harm(runs / "other" / SUMMARY)
    if harm is bomb:
        relist(runs / "other", runs / "other" / SUMMARY)
    with pytest.warns(UserWarning, match=r"summary\.parquet .*; recomputing"):
        assert repr(summarize(runs / "other").rows) == expected
    assert repr(summarize(runs / "other").rows) == expected


@pytest.mark.parametrize("harm", [pipe, device, sparse])
def test_a_record_of_runs_and_a_copy_in_whose_place_something_else_is(
    harm: Callable[[Path], None], runs: Path
) -> None:
    """The copy counts for nothing, and the next run puts one there."""
    (runs / SWEEP).write_text("{}")
    harm(runs / SWEEP)
    with pytest.raises(
        StoreError, match=rf"can't read {re.escape(str(runs / SWEEP))}: it (is a|has)"
    ):
        read_sweep(runs)
    choicewise("doctor", runs, code=DAMAGED if harm is sparse else 0)
    harm(runs / "other" / "manifest.copy.json")
    choicewise("doctor", runs / "other", code=0)
    (runs / "other" / MANIFEST).write_text("{")
    choicewise("doctor", runs / "other", "--drop", code=DAMAGED)


def test_a_link_to_a_file_is_followed(runs: Path, tmp_path: Path) -> None:
    """A large run may lie on several disks."""
    run, path = runs / "other", block(runs / "other") / "spans.parquet"
    path.symlink_to(shutil.move(path, tmp_path / "elsewhere.parquet"))
    assert damaged_blocks(run, read_manifest(run).blocks) == []


def test_what_is_read_has_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert read_bytes(tmp_path / "a", 11) == b"x" * 11
    with pytest.raises(Refused, match="it has 11 bytes; at most 10"):
        read_bytes(tmp_path / "a", 10)
    with pytest.raises(Refused, match="folder, not a file"):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "b")
    assert DOCUMENT > 10_000_000


def test_a_manifest_that_is_nested_too_deeply_is_damaged(runs: Path) -> None:
    path = runs / "other" / MANIFEST
    content = path.read_text()
    for depth in (900, 990, 5_000, 100_000):
        path.write_text(
            content.replace('"job": {', '"job": ' + "[" * depth + "]" * depth + ', "x": {', 1)
        )
        with pytest.raises(StoreError, match="is damaged"):
            read_manifest(runs / "other")


# What a table takes in memory


def sized(table: pa.Table, **options: object) -> tuple[int, int]:
    """(what is said that it takes in memory, what it takes) of a table as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    opened = open_parquet(file)
    return unpacked(file), opened.read().nbytes


NULLS = pa.table(
    {"a": pa.array([None] * 70_000, pa.string()), "b": pa.array([None] * 70_000, pa.int64())}
)
LISTS = pa.table(
    {"a": [["x"] * 9, [], None, ["long " * 50]] * 500, "b": [[1, 2], [3], None, []] * 500}
)
NESTED = pa.table({"a": [{"b": "one", "c": ["x" * 90, "y"]}, {"b": None, "c": None}] * 700})
NUMBERS = pa.table({"a": range(40_000), "b": [True, False] * 20_000, "c": [0.5] * 40_000})
TEXTS = pa.table(
    {"a": ["the same long text " * 20] * 9_000, "b": [f"{number}" * 7 for number in range(9_000)]}
)
WRITTEN: list[dict[str, object]] = [
    {},
    {"use_dictionary": False},
    {"data_page_version": "2.0", "compression": "zstd"},
    {"data_page_size": 300, "write_page_checksum": True, "row_group_size": 1_000},
    {"version": "1.0", "compression": "none", "write_statistics": False},
]
REPEATING = [
    {"use_dictionary": False, "column_encoding": {"a": encoding, "b": "PLAIN"}}
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
]
"""Texts that repeat the one before."""


CASES_OF_SIZE = [
    *product([NULLS, LISTS, NESTED, NUMBERS, TEXTS], WRITTEN),
    *product([TEXTS], REPEATING),
]


@pytest.mark.parametrize(("table", "options"), CASES_OF_SIZE)
def test_no_table_takes_more_than_is_said(table: pa.Table, options: dict[str, object]) -> None:
    said, taken = sized(table, **options)
    assert said >= taken > 0


@pytest.mark.parametrize("table", [LISTS, NESTED, TEXTS])
def test_repeated_texts_are_counted_if_the_bound_is_rough(
    table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reference to the longest text would be too much, and what is really there is not."""
    rough, taken = sized(table)
    monkeypatch.setattr(budget, "_RATIO", 0)
    monkeypatch.setattr(budget, "AT_ONCE", rough - 1)
    exact, _ = sized(table)
    assert taken <= exact < rough
    monkeypatch.setattr(budget, "AT_ONCE", exact - 1)
    with pytest.raises(
        Refused,
        match=f"{exact:,} bytes of memory; .* {exact - 1:,}",
    ):
        sized(table)


def test_what_the_end_of_a_file_says_of_sizes_is_not_believed() -> None:
    """The sums of its columns are put to 1 byte, as whoever wants to be read would."""

    def varint(value: int) -> bytes:
        content = b""
        while value > 127:
            content, value = content + bytes([value & 127 | 128]), value >> 7
        return content + bytes([value])

    def size(file: io.BytesIO) -> int:
        return int(pq.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size)

    file = io.BytesIO()
    pq.write_table(TEXTS.select(["a"]), file, use_dictionary=False, compression="none")
    content, true = file.getvalue(), varint(2 * size(file))
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    footer = content[start:].replace(true, varint(2 * (1 << 7 * (len(true) - 1))), 1)
    lying = io.BytesIO(content[:start] + footer)
    assert size(lying) < size(file)
    assert unpacked(lying) == unpacked(file)


def test_a_long_table_is_read_in_batches(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the row group: a million items have fifty."""
    monkeypatch.setattr("choicewise.store.tables.ITEMS_AT_ONCE", 50)
    row = {
        "split": "test",
        "subject": "s",
        "question": "q" * 9_000,
        "choices": ["a"],
        "gold": [0],
        "fields": "{}",
    }
    rows = [
        tuple({**row, "position": place, "item": f"{place}"}[name] for name in ITEMS.names)
        for place in range(500)
    ]
    write_items(tmp_path, iter(rows))  # type: ignore[arg-type]
    path = tmp_path / ITEM_FILE
    monkeypatch.setattr(budget, "_RATIO", 0)
    monkeypatch.setattr(budget, "AT_ONCE", 1_000_000)
    assert sum(len(batch) for batch in read_batches(path, ITEMS, ["item", "question"])) == 500
    with pytest.raises(StoreError, match="bytes of memory; .* 1,000,000"):
        read_columns(path, ITEMS, ["item", "question"])
    assert len(read_columns(path, ITEMS, ["item"])) == 500
    with pytest.raises(StoreError, match="bytes of memory"):
        read_table(path, ITEMS, file_record(path))
    monkeypatch.setattr(budget, "IN_ALL", 2_000_000)
    with pytest.raises(StoreError, match="; at most 2,000,000 are used"):
        next(read_batches(path, ITEMS, ["item", "question"]))


def test_bytes_that_are_no_pages_are_refused(runs: Path) -> None:
    content = (block(runs / "other", 0) / "spans.parquet").read_bytes()
    for place in range(4, len(content), 5):
        for value in (0, 255):
            broken = io.BytesIO(content[:place] + bytes([value]) * 3 + content[place + 3 :])
            with suppress(OSError, pa.ArrowException):
                open_parquet(broken)
                assert unpacked(broken) >= 0


def test_a_footer_without_end() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    endless = file.getvalue()[:4] + bytes(20_000_000) + struct.pack("<I", 12_000_000) + b"PAR1"
    with pytest.raises(Refused, match="its footer .* 10,000,000 bytes"):
        open_parquet(io.BytesIO(endless))


def test_a_log_of_another_tool_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(
        pa.table({"item": ["a"], "choice": ["0"], "loglikelihood": [-1.0], "gold": ["0"]}), path
    )
    assert len(read_log(path).columns) == 1
    monkeypatch.setattr(budget, "_RATIO", 0)
    monkeypatch.setattr(data_files, "_DATA_AT_ONCE", 10)
    with pytest.raises(DataError, match="bytes of memory; .* 10"):
        read_log(path)


def test_blocks_that_take_much_are_no_portion_together(runs: Path) -> None:
    """Many small files that unpack to much are read one after the other."""

    def portions(name: str) -> int:
        run = open_run(runs / name)
        return len(list_portions(run.folder, run.manifest.blocks, places_of(run.evidence.items)))

    run = open_run(runs / "whole")
    assert (portions("whole"), len(run.manifest.blocks) > 2) == (1, True)
    for record in run.manifest.blocks:
        path = runs / "other" / "blocks" / record.name / "spans.parquet"
        table = pq.read_table(path)
        long = pa.array(["x" * 20_000_000] * len(table))
        pq.write_table(
            table.set_column(SPANS.names.index("context"), "context", long),
            path,
            compression="zstd",
        )
        relist(runs / "other", path)
    assert file_record(path).bytes < 2_000_000
    assert portions("other") == len(run.manifest.blocks)


HELLO, ECHO = [Message("user", "hi")], "{{ messages[0].content }}"
ATTACKS = {
    "loops": ("{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3, "too much processor time"),
    "powers": (
        "{{ 9 ** messages[0].content | length ** 99 ** 9 }}{{ 9 ** (9 ** (10 - 1)) }}",
        "too much processor time|MB of memory",
    ),
    "multiplied": ("{{ 'a' * 10 ** 10 }}", "MB of memory"),
    "multiplied later": ("{{ messages[0].content * 10 ** 10 }}", "MB of memory"),
    "doubled": (
        "{% set s = namespace(x='letters') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}{{ s.x }}",
        "MB of memory",
    ),
    "centred": ("{{ messages[0].content | center(10 ** 10) }}", "MB of memory"),
    "formatted": ("{{ '%9000000000d' | format(1) }}", "MB of memory"),
    "lists": ("{% set x = [[]] * 10 ** 10 %}", "MB of memory"),
    "long": (
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "gives more than 10000000 characters",
    ),
    "class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    "globals": ("{{ cycler.__init__.__globals__.os.system('touch SENTINEL') }}", "SecurityError"),
    "attribute": (
        "{{ messages | map(attribute='__class__.__base__.__subclasses__') | list }}",
        "SecurityError",
    ),
    "format string": (
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "SecurityError",
    ),
    "changes": ("{{ messages.append(messages) }}", "SecurityError"),
    "deep": ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "fails|ended|calls itself"),
    "recursion": ("{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}", "fails|ended|calls itself"),
    "files": ("{% include '/etc/passwd' %}", "fails"),
    "syntax": ("{% if", "can't be used"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, reason = ATTACKS[name]
    with pytest.raises(ModelError, match=reason):
        ChatTemplate(text, {}).render(HELLO)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a process is bounded on Linux alone"
)
def test_the_process_has_bounded_memory_can_write_no_file_and_sees_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    renderer = ChatTemplate(ECHO, {})
    assert renderer.render(HELLO) == "hi"
    about = Path(f"/proc/{renderer._process.pid}")
    limits = {
        line[:26].strip(): line[26:].split() for line in (about / "limits").read_text().splitlines()
    }
    assert int(limits["Max data size"][0]) < ChatTemplate.limits.memory + (1 << 30)
    assert limits["Max file size"][0] == "0"
    assert b"hf_secret" not in (about / "environ").read_bytes()


def test_a_template_that_failed_fails_again_in_a_new_process() -> None:
    template = ChatTemplate(
        "{{ 'a' * 10 ** 10 if messages[0].content == 'big' else messages[0].content }}", {}
    )
    assert template.render([Message("user", "small")]) == "small"
    with pytest.raises(ModelError, match="memory"):
        template.render([Message("user", "big")])
    assert template.render([Message("user", "another")]) == "another"


def test_the_process_ends_with_its_template_and_one_that_is_gone_is_an_error() -> None:
    renderer = ChatTemplate(ECHO, {})
    renderer.render(HELLO)
    process = renderer._process
    assert process.poll() is None
    del renderer
    assert process.wait(timeout=60) != 0
    renderer = ChatTemplate(ECHO, {})
    renderer.render(HELLO)
    renderer._process.kill()
    renderer._process.wait()
    with pytest.raises(ModelError, match="chat template ended"):
        renderer.render([Message("user", "another")])


def test_texts_of_every_kind_come_back_as_they_are() -> None:
    template = ChatTemplate(ECHO, {})
    for text in ("", "\n", "\r\n\x00", "é\u2028\U0001f469", '"\\', "x" * 1_000_000):
        assert template.render([Message("user", text)]) == text


def test_rendering_imports_no_torch_here() -> None:
    line = "from choicewise.tokens.chat_template import ChatTemplate, Message; import sys; print("
    line += f"ChatTemplate({ECHO!r}, {{}}).render([Message('user', 'hi')]), "
    line += "{'torch', 'transformers', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "hi set()"


LEFT_OUT = "drops the user's text"
WRONG = dict.fromkeys(("", "Hello", "{{ lipsum.__globals__ }}", "{{ messages[0].role }}"), LEFT_OUT)
WRONG[ECHO + "{{ '\\ud800' }}"] = "broken characters"


@pytest.mark.parametrize("template", WRONG)
def test_a_template_that_leaves_out_the_question_or_gives_halves_of_characters_is_an_error(
    template: str,
) -> None:
    with pytest.raises(ModelError, match=WRONG[template]):
        ChatTemplate(template, {}).render([Message("user", "What?")])


# Files that a user names


def named_by_a_user(path: Path) -> dict[str, list[object]]:
    """Every way to name the file ``path``, as the words of a command."""
    data = ["--data", path.parent / "quiz.csv"]
    out = ["--out", path.parent / "out"]
    run = ["run", "--model", "fake:hash", *out]
    one = ["--protocol", "options/cloze:sum"]
    return {
        "data": ["data", path],
        "run": [*run, *one, "--data", path],
        "mapping": [*run, *one, *data, "--mapping", path],
        "protocol": [*run, *data, "--protocol", path],
        "plan": ["sweep", path, *out],
        "log": ["import", path, *out],
        "texts": ["check", "--model", SMALLEST, "--against", SMALLEST, "--texts", path],
    }


ENDINGS = {
    "data": (".jsonl", ".csv", ".tsv", ".parquet", ".json"),
    "run": (".csv",),
    "mapping": (".toml",),
    "protocol": (".toml",),
    "plan": (".toml",),
    "log": (".jsonl", ".csv", ".parquet", ".json", ".eval"),
    "texts": (".txt",),
}
NAMED = [
    (use, ending, harm) for use, endings in ENDINGS.items() for ending in endings for harm in HARMS
]


@pytest.mark.parametrize(("use", "ending", "harm"), NAMED)
def test_a_file_that_a_user_names_is_no_pipe_device_or_endless(
    use: str, ending: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    (tmp_path / "quiz.csv").write_text("question,A,B,answer\nWhat?,one,two,A\nWho?,one,two,B\n")
    path = tmp_path / f"file{ending}"
    path.touch()
    harm(path)
    told = choicewise(*named_by_a_user(path)[use])
    assert told.code in range(1, 7)
    assert "Traceback" not in told.stderr
    assert path.name in told.stderr


MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "model.safetensors",
)


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_no_file_of_a_model_folder_is_a_pipe_device_or_endless(
    name: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = shutil.copytree(SMALLEST, tmp_path / "model")
    harm(folder / name)
    with suppress(ModelError):
        load_model(folder, device="cpu").local  # type: ignore[attr-defined]  # noqa: B018


def test_a_long_line_and_a_small_parquet_file_that_unpacks_to_much_are_refused(
    tmp_path: Path,
) -> None:
    line = tmp_path / "line.jsonl"
    line.write_bytes(b'{"question": "' + b"a" * LONGEST_LINE + b'"}\n')
    assert "line 1 (from 1), has over 16,000,000 bytes" in choicewise("data", line, code=3).stderr
    count = 2_000
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * count, pa.int32()), pa.array(["x" * 1_600_000])
    )
    rows = {"question": texts, "A": ["a"] * count, "B": ["b"] * count, "answer": ["A"] * count}
    for name, options in {"references": {}, "beginnings": FRONTED}.items():
        path = tmp_path / f"{name}.parquet"
        table = pa.table(rows)
        if name == "beginnings":
            texts = texts.slice(0, count // 4).cast(pa.string())
            table = pa.table(
                {**{name: cells[: count // 4] for name, cells in rows.items()}, "question": texts}
            )
        pq.write_table(table, path, compression="zstd", store_schema=False, **options)
        assert path.stat().st_size < 100_000
        assert "at most 250,000,000" in choicewise("data", path, code=3).stderr


def test_parquet_whose_texts_begin_as_the_one_before_is_read(tmp_path: Path) -> None:
    """What they may take at most is far more than what they take."""
    count = 9_000
    rows = {
        name: [f"the same beginning of {name} {place}" for place in range(count)]
        for name in ("question", "A", "B")
    }
    pq.write_table(
        pa.table({**rows, "answer": ["A"] * count}), tmp_path / "quiz.parquet", **FRONTED
    )
    assert "9,000" in choicewise("data", tmp_path / "quiz.parquet", code=0).stdout


@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a process is bounded on Linux alone"
)
@pytest.mark.parametrize("name", ["vocab_size", "intermediate_size", "num_hidden_layers"])
def test_a_configuration_that_lies_takes_no_memory(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(SMALLEST, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {name: 10_000_000}))
    line = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (3_000_000_000,) * 2); import choicewise; "
    line += f"choicewise.score({str(folder)!r}, 'a', ['b', 'c'])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    assert "fetch the folder again" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a process is bounded on Linux alone"
)
def test_a_span_beyond_its_row_takes_no_memory(tmp_path: Path) -> None:
    choicewise(
        *(
            "requests",
            "--tokenizer",
            "bundled:merrow-bpe-512",
            "--data",
            write_mmlu(tmp_path / "data", questions=2),
        ),
        *("--protocol", "mmlu/cloze:sum", "--out", tmp_path / "bundle"),
        code=0,
    )
    path = tmp_path / "bundle" / ROWS
    rows = pq.read_table(path).to_pylist()
    rows[0]["spans"] = [{"start": 0, "stop": 2**31 - 1}] * 4
    pq.write_table(pa.Table.from_pylist(rows, BUNDLE_SCHEMA), path)
    about = json.loads((tmp_path / "bundle" / BUNDLE).read_text())
    about["files"][ROWS] = asdict(file_record(path))
    (tmp_path / "bundle" / BUNDLE).write_text(json.dumps(about))
    line = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2_000_000_000,) * 2); import choicewise; "
    line += f"choicewise.open_bundle({str(tmp_path / 'bundle')!r})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    # A thread under way as the interpreter ends may add a line after the error.
    (told,) = (line for line in done.stderr.splitlines() if "StoreError: " in line)
    assert "row 0 (counted from 0): a span" in told
    assert "MemoryError" not in done.stderr


def test_deep_json_beside_answers_is_an_error(tmp_path: Path) -> None:
    choicewise(
        *(
            "requests",
            "--tokenizer",
            "bundled:merrow-bpe-512",
            "--data",
            write_mmlu(tmp_path / "data", questions=2),
        ),
        *("--protocol", "mmlu/cloze:sum", "--out", tmp_path / "bundle"),
        code=0,
    )
    (tmp_path / "answers.csv").write_text("key,sum_logprob\n")
    for depth in (101, 400, 900, 100_000):
        notes = "[" * depth + "]" * depth
        (tmp_path / "answers.json").write_text(
            f'{{"requests": "x", "model": "m", "notes": {notes}}}'
        )
        asked = [
            "import",
            tmp_path / "bundle",
            "--answers",
            tmp_path / "answers.csv",
            "--out",
            tmp_path / "run",
        ]
        assert "nested too deeply" in choicewise(*asked, code=3).stderr


def test_a_page_is_not_written_into_a_pipe(runs: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "page.html")
    told = choicewise("page", runs / "other", "--out", tmp_path / "page.html", code=2)
    assert "device or a pipe" in told.stderr
