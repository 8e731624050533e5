"""Damage, disks, names, versions and clocks that a run folder meets: named, and what can be mended or used is."""

import errno
import json
import os
import pickle
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise import Run, evaluate, open_run
from choicewise.cli import options
from choicewise.errors import StoreError
from choicewise.extensions.doctor.examine import Examined, Remedy, examine_runs
from choicewise.results.summary import summarize
from choicewise.store.folder import RunFolder, read_manifest, write_manifest
from choicewise.store.tables import read_blocks
from choicewise.util.files import LONGEST, folder_name, free_name, locked
from tests.helpers.commands import choicewise
from tests.helpers.damage import block, empty, flip, foreign, relist, truncate
from tests.helpers.mmlu_data import set_block_size, write_mmlu

HEALTHY, LACKING, DAMAGED = 0, 7, 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of several blocks, beside its data; not to be written to."""
    home = tmp_path_factory.mktemp("home")
    data = write_mmlu(home / "data", questions=12)
    names = ["--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer"]
    with pytest.MonkeyPatch.context() as patch:
        set_block_size(patch, 5)
        choicewise(
            "run", "--model", "fake:hash", "--data", data, *names, "--out", home / "run", code=0
        )
    return home


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Path:
    """A copy of it, whose command names the data that lie beside the first one."""
    return shutil.copytree(home / "run", tmp_path / "run")


def doctor(run: Path, *words: str) -> int:
    return choicewise("doctor", run, *words).code


def examined(folder: Path) -> Examined:
    (only,) = examine_runs(folder)
    return only


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def outside(run: Path) -> dict[str, bytes]:
    """What lies beside the run, where no link is followed to."""
    return {
        name: content for name, content in files(run.parent).items() if not name.startswith("run")
    }


def lose_observations(run: Path) -> None:
    manifest = read_manifest(run)
    table = read_blocks(run, manifest.blocks[:1], "observations")
    RunFolder(run, manifest).replace_observations(manifest.blocks[0].name, table.slice(3))


def other_schema(run: Path) -> None:
    path = block(run) / "spans.parquet"
    foreign(path)
    relist(run, path)


def link(run: Path, path: Path) -> None:
    """Have it lie outside of the run, as on another disk."""
    path.symlink_to(shutil.move(path, run.parent / "elsewhere"))


def link_away(run: Path) -> None:
    (run.parent / "secret").write_text("mine")
    (run / "blocks" / "00099").symlink_to(run.parent)
    (block(run) / "more").symlink_to(run.parent / "secret")


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit(run: Path) -> None:
    replace_text(run / "manifest.json", '"name": "fake:hash"', '"name": "GPT-9"')


def rename_block(run: Path) -> None:
    """A forger's manifest whose block lies outside."""
    manifest = read_manifest(run)
    write_manifest(
        run,
        replace(
            manifest, blocks=(replace(manifest.blocks[0], name="../../x"), *manifest.blocks[1:])
        ),
    )
    shutil.copy(run / "manifest.json", run / "manifest.copy.json")


def leftovers(run: Path) -> None:
    (run / "items.parquet.partial").write_bytes(b"PAR1")
    (run / "blocks" / "00031.partial").mkdir()


DAMAGES: list[tuple[Callable[[Path], Any], str, Remedy]] = [
    (lambda run: (block(run) / "spans.parquet").unlink(), "is missing", Remedy.drop),
    (lambda run: shutil.rmtree(block(run)), "is missing", Remedy.drop),
    (lambda run: truncate(block(run) / "requests.parquet"), "bytes instead of", Remedy.drop),
    (lambda run: empty(block(run) / "observations.parquet"), "has 0 bytes", Remedy.drop),
    (lambda run: flip(block(run) / "observations.parquet"), "its sha256 differs", Remedy.drop),
    (lambda run: foreign(block(run, 0) / "observations.parquet"), "bytes instead of", Remedy.drop),
    (other_schema, "table of this version", Remedy.drop),
    (lose_observations, "that are in no block", Remedy.drop),
    (lambda run: truncate(run / "items.parquet"), "bytes instead of", Remedy.run_again),
    (lambda run: (run / "items.parquet").unlink(), "is missing", Remedy.run_again),
    (lambda run: flip(run / "items.parquet"), "its sha256 differs", Remedy.run_again),
    (lambda run: truncate(run / "summary.parquet"), "bytes instead of", Remedy.run_again),
    (
        lambda run: (run / "summary.parquet").write_bytes(b"\x80\x04."),
        "has 3 bytes",
        Remedy.run_again,
    ),
    (lambda run: (run / "manifest.json").unlink(), "is missing", Remedy.by_hand),
    (lambda run: truncate(run / "manifest.json"), "is damaged", Remedy.by_hand),
    (lambda run: empty(run / "manifest.json"), "is damaged", Remedy.by_hand),
    (
        lambda run: (run / "manifest.json").write_text("[]"),
        "not a manifest",
        Remedy.by_hand,
    ),
    (edit, "was changed", Remedy.by_hand),
]


@pytest.mark.parametrize(("damage", "problem", "remedy"), DAMAGES)
def test_damage_is_mended(
    damage: Callable[[Path], Any], problem: str, remedy: Remedy, home: Path, run: Path
) -> None:
    expected = open_run(home / "run").report().to_pylist()
    damage(run)
    before, beside = files(run), outside(run)
    named = [fault for fault in examined(run).harmed if problem in fault.problem]
    assert [fault.remedy for fault in named[:1]] == [remedy], examined(run).faults
    assert (doctor(run), files(run)) == (DAMAGED, before)
    (told,) = json.loads(choicewise("doctor", run, "--drop", "--json").stdout)
    assert outside(run) == beside
    assert (told["dropped"] != [], told["line"] != "") == (
        remedy is Remedy.drop,
        remedy is Remedy.drop,
    )
    if remedy is Remedy.drop:
        assert (told["damaged"], read_manifest(run).complete) == (0, False)
        words = shlex.split(told["line"])
        assert words[:2] == ["choicewise", "run"]
        choicewise(*words[1:], code=0)
    elif remedy is Remedy.by_hand:
        assert files(run) == before
        words = shlex.split(named[0].problem.split("`")[1])
        assert words[0] == "cp"
        subprocess.run(words, check=True)
    else:
        line = options.line_of(run, read_manifest(run))
        choicewise(*shlex.split(line)[1:], code=0)
    assert open_run(run).report().to_pylist() == expected
    keys = read_blocks(run, read_manifest(run).blocks, "observations")["key"].to_pylist()
    assert (len(keys), doctor(run)) == (len(set(keys)), HEALTHY)


NOTED: list[tuple[Callable[[Path], Any], str]] = [
    (leftovers, "killed write"),
    (lambda run: shutil.copytree(block(run), run / "blocks/00031"), "manifest does not list"),
    (lambda run: (block(run) / "notes.txt").write_text("x"), "nothing reads it"),
    (lambda run: (run / "blocks" / "x").mkdir(), "nothing reads it"),
    (lambda run: link(run, block(run) / "spans.parquet"), "outside the run folder"),
    (lambda run: link(run, block(run)), "outside the run folder"),
    (lambda run: link(run, run / "blocks"), "outside the run folder"),
    (link_away, "outside the run folder"),
]


@pytest.mark.parametrize(("strange", "problem"), NOTED)
def test_what_does_no_harm_is_noted_and_stays(
    strange: Callable[[Path], Any], problem: str, run: Path
) -> None:
    strange(run)
    before, beside = files(run), outside(run)
    assert any(problem in fault.problem for fault in examined(run).faults)
    assert (examined(run).harmed, doctor(run, "--drop")) == ([], HEALTHY)
    assert (files(run), outside(run)) == (before, beside)


def test_a_pickle_is_damage_and_is_left_to_its_owner(run: Path) -> None:
    pickled = block(run) / "cache"
    pickled.write_bytes(pickle.dumps({"a": 1}))
    (fault,) = examined(run).harmed
    assert (fault.remedy, "is a pickle" in fault.problem) == (Remedy.by_hand, True)
    assert (doctor(run, "--drop"), pickled.exists()) == (DAMAGED, True)


def test_a_whole_run_is_healthy_and_nothing_is_changed(run: Path) -> None:
    before = files(run)
    assert examined(run).faults == []
    assert doctor(run) == doctor(run, "--drop") == HEALTHY
    assert files(run) == before
    assert (examined(run).blocks, examined(run).items) == (len(read_manifest(run).blocks), 24)


FORGED: list[tuple[Callable[[Path], None], str]] = [
    (
        lambda run: replace_text(run / "manifest.json", '"version": 3', '"version": 99'),
        "version 99",
    ),
    (rename_block, "'../../x'"),
]


@pytest.mark.parametrize(("forge", "problem"), FORGED)
def test_what_cannot_be_mended_is_named_and_stays(
    forge: Callable[[Path], None], problem: str, run: Path
) -> None:
    forge(run)
    before = files(run)
    (fault,) = examined(run).harmed
    assert (fault.remedy, problem in fault.problem, doctor(run, "--drop")) == (
        Remedy.by_hand,
        True,
        DAMAGED,
    )
    assert files(run) == before


def test_other_files_are_noted_and_stay(run: Path) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "manifest.copy.json").unlink()
    assert sorted(fault.kind for fault in examined(run).faults) == ["copy", "foreign"]
    assert (examined(run).harmed, doctor(run, "--drop")) == ([], HEALTHY)
    assert (run / "notes.txt").read_text() == "mine"


def test_nothing_is_deleted_before_it_is_asked_again(run: Path) -> None:
    truncate(block(run) / "spans.parquet")
    observed = block(run) / "observations.parquet"
    content = observed.read_bytes()
    assert doctor(run, "--drop") == LACKING
    assert observed.read_bytes() == content
    assert observed.parent.name not in {each.name for each in read_manifest(run).blocks}


def test_a_running_folder_is_not_touched(run: Path) -> None:
    truncate(block(run) / "spans.parquet")
    before = files(run)
    with locked(run):
        for more in ([], ["--drop"]):
            told = choicewise("doctor", run, *more, code=HEALTHY).stdout
            assert "not examined" in told
    assert files(run) == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds none; .*`choicewise run`"):
        list(examine_runs(tmp_path))


def test_every_run_of_a_sweep_is_examined_and_the_copy_of_its_record_is_named(
    home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    words = ["sweep", "--model", "fake:hash", "--model", "fake:oracle", "--data", home / "data"]
    words += ["--protocol", "mmlu/original", "--out", folder]
    whole = choicewise(*words, code=0).stdout
    (folder / "sweep.json").write_text("{")
    assert [each.state for each in examine_runs(folder)] == ["sweep", "complete", "complete"]
    assert doctor(folder) == doctor(folder, "--drop") == DAMAGED
    sweep = next(examine_runs(folder))
    subprocess.run(shlex.split(sweep.faults[0].problem.split("`")[1]), check=True)
    assert (doctor(folder), choicewise(*words, code=0).stdout) == (HEALTHY, whole)


def test_it_works_without_torch(run: Path) -> None:
    done = python(f"import sys; sys.modules['torch'] = None; {MAIN}", "doctor", str(run))
    assert (done.returncode, done.stderr, "no damage found" in done.stdout) == (0, "", True)


PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]
NAMES = [
    "../../x",
    "/etc/passwd",
    "m" * 300,
    "con",
    "NUL.txt",
    "a=b",
    "100%",
    "line\nend",
    "..",
    "",
    "-rf",
    "\x1b[2J",
]
NAMES += ["é"]


MAIN = "from choicewise.cli import main; main()"
HELD = f"""
import ctypes, os
if os.geteuid() == 0:
    libc, head, data = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, data) == 0
    data[0] &= ~0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
    assert libc.capset(head, data) == 0
{MAIN}
"""
"""Starts the command, for which modes of files hold: root gives up to override them."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=12)


def run_of(data: Path, out: Path) -> Run:
    return evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=out)


def line(data: Path, out: Path, model: str = "fake:hash") -> list[str]:
    named = [word for protocol in PROTOCOLS for word in ("--protocol", protocol)]
    return ["run", "--model", model, "--data", str(data), *named, "--out", str(out)]


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )


# Disks


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.ENOSPC,
            "disk is full .* run the same command",
        ),
        (errno.EDQUOT, "quota .* free some space"),
        (errno.EROFS, "can't be written: Read-only file system; choose another folder"),
        (errno.EIO, "can't be written: .* answers are safe"),
    ],
)
def test_disk_errors_are_named(
    number: int, said: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_of(data, tmp_path / "whole")
    asked: list[int] = []

    def refuse(descriptor: int) -> None:
        asked.append(descriptor)
        if len(asked) > 40:
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched, pytest.raises(StoreError, match=said):
        patched.setattr(os, "fsync", refuse)
        run_of(data, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert 0 < len(read_manifest(tmp_path / "run").blocks) < len(whole.manifest.blocks)
    assert len(open_run(tmp_path / "run").report()) == len(whole.report())
    assert run_of(data, tmp_path / "run").report().to_pylist() == whole.report().to_pylist()


def test_a_limit_on_the_size_of_files_is_named(data: Path, tmp_path: Path) -> None:
    """A real refusal by the system, in the middle of what pyarrow writes."""
    code = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    code += f"; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); {MAIN}"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = python(code, *line(data, tmp_path / "run"))
    assert (done.returncode, "Traceback" in done.stderr) == (6, False)
    assert re.search(r"error: .*can't be written: .*File too large.*answers are safe", done.stderr)
    choicewise(*line(data, tmp_path / "run"), code=0)


def test_a_read_only_folder_is_named_and_can_be_read(data: Path, tmp_path: Path) -> None:
    home, run = tmp_path / "home", tmp_path / "home" / "run"
    hidden = run / "blocks" / run_of(data, run).manifest.blocks[0].name / "spans.parquet"
    (run / "summary.parquet").unlink(missing_ok=True)
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert python(HELD, "report", str(run)).returncode == 0
        assert not (run / "summary.parquet").exists()
        assert python(HELD, *line(data, run)).returncode == 0  # nothing to do
        refused = python(HELD, *line(data, home / "new"))
        assert (refused.returncode, "can't be written" in refused.stderr) == (6, True)
        hidden.chmod(0)
        told = python(HELD, "report", str(run))
        assert told.returncode == 0
        assert "spans.parquet can't be read: Permission" in told.stderr
        examined = python(HELD, "doctor", str(run))
        assert (examined.returncode, "make it readable [by hand]" in examined.stdout) == (8, True)
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(0o755)


# Parts of a folder


@pytest.fixture
def runs(data: Path, tmp_path: Path) -> Path:
    """The folder of two runs, ``run`` and ``other``."""
    for name, model in (("run", "fake:hash"), ("other", "fake:oracle")):
        choicewise(*line(data, tmp_path / "runs" / name, model), code=0)
    return tmp_path / "runs"


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("damage", [truncate, empty, foreign, Path.unlink])
def test_report_page_and_compare_go_on_without_a_damaged_block(
    damage: Callable[[Path], None], runs: Path
) -> None:
    path, both = runs / "run" / "blocks" / "00001" / "spans.parquet", [runs / "run", runs / "other"]
    damage(path)
    for words in (
        ["report", *both],
        ["compare", *both],
        ["page", *both, "--out", runs / "page.html"],
    ):
        assert f"{path} " in choicewise(*words, code=0).stderr, words


def of_an_older_version(path: Path) -> None:
    foreign(path)
    relist(path.parents[2], path)


def of_a_newer_version(path: Path) -> None:
    path.write_text(path.read_text().replace('"version": 3', '"version": 4', 1))


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (of_an_older_version, "blocks/00001/spans.parquet"),
        (of_a_newer_version, "manifest.json"),
        (truncate, "manifest.json"),
        (truncate, "items.parquet"),
    ],
)
def test_other_versions_and_lost_parts_are_named(
    damage: Callable[[Path], None], name: str, runs: Path
) -> None:
    damage(runs / "run" / name)
    told = choicewise("report", runs, code=0)
    assert str(runs / "run" / name) in told.stderr
    assert ("fake:oracle" in told.stdout, "fake:hash" in told.stdout) == (
        True,
        damage is of_an_older_version,
    )
    choicewise("page", runs, "--out", runs / "page.html", code=0)


def test_a_planted_link_is_not_written_through(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    for name in ("items.parquet", "manifest.json", "summary.parquet"):
        (tmp_path / "run" / f"{name}.partial").symlink_to(tmp_path / "mine")
    choicewise(*line(data, tmp_path / "run"), code=0)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not list((tmp_path / "run").glob("*.partial"))


@pytest.mark.parametrize("second", [0, 1_000_000_000, 4_000_000_000])
def test_no_number_depends_on_the_clock(second: int, data: Path, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run")
    whole, report = summarize(run.folder).rows, run.report().to_pylist()
    for number, path in enumerate(sorted(run.folder.rglob("*"))):
        os.utime(path, (second + number, second + number))
    assert repr(summarize(run.folder).rows) == repr(whole)
    spans = run.folder / "blocks" / "00001" / "spans.parquet"
    truncate(spans)
    os.utime(spans, (1, 1))
    assert run_of(data, run.folder).report().to_pylist() == report


# Names


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_one_folder(name: str, tmp_path: Path) -> None:
    folder = folder_name(name)
    assert re.fullmatch(r"[\w.@+-]+", folder, re.ASCII)
    assert 0 < len(folder) <= LONGEST + 1
    assert (folder.strip("."), folder.startswith("-")) == (folder, False)
    (tmp_path / folder).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_names_that_look_alike_have_folders_of_their_own() -> None:
    assert folder_name("m" * 300) != folder_name("m" * 299 + "n")
    assert (free_name("con", ["CON"]), free_name("a", ["A", "a-2"])) == ("con-2", "a-3")


def test_a_sweep_of_oddly_named_models_records_each_and_goes_on(data: Path, tmp_path: Path) -> None:
    names, out = [name for name in NAMES if name], tmp_path / "a" / "b" / "sweep"
    words = [word for name in (*names, "fake:hash") for word in ("--model", name)]
    told = choicewise(
        "sweep", *words, "--data", data, "--protocol", "mmlu/original", "--out", out, code=7
    )
    assert f"{len(names)} of {len(names) + 1} runs are missing" in told.stderr
    assert "\x1b" not in told.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "fake-hash",
        "sweep.copy.json",
        "sweep.json",
    ]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
