"""Secrets are planted wherever they are read from, and looked for in everything that comes out of a working day.

The commands run as users run them, in processes of their own, with every library's log kept down to the last detail.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.interchange.export import WRITERS
from tests.helpers import hub_server
from tests.helpers.hub_server import Hub
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.planted_secrets import API_KEY, LOGIN, SECRETS, SIGNED, forms, leaks, leaks_below
from tests.paths import ROOT
from tests.served.test_hub_data import jsonl

SOURCE = ROOT / "src"
SEARCHED = {**SECRETS, "the login of the proxy": LOGIN, "a signed address": SIGNED}

DRIVER = """
import json, logging, sys, traceback
class Everything(logging.Formatter):
    def format(self, record):
        told = [record.getMessage(), repr(vars(record))]
        if record.exc_info and record.exc_info[1]:
            told += traceback.TracebackException.from_exception(record.exc_info[1], capture_locals=True).format()
        return " ".join(told)
place, lines = sys.argv[1], json.loads(sys.argv[2])
log = logging.FileHandler(place + ".log")
log.setFormatter(Everything())
logging.basicConfig(level=logging.DEBUG, handlers=[log])
logging.captureWarnings(True)
from choicewise import cli
{before}
codes = []
for line in lines:
    try:
        codes.append(cli.run_command(line))
    except Exception as error:
        traceback.print_exc()
        codes.append(type(error).__name__)
open(place + ".codes", "w").write(json.dumps(codes))
"""
"""Commands one after another, with the log of every library and the codes with which they end in files at a place."""

CRASH = """
from choicewise.models.fake import HashModel
def crashing(self, questions):
    yield from ()
    raise RuntimeError("a fault of the program")
HashModel.answer = crashing
"""


class Day:
    """Commands in a folder of their own: what they print and log is kept there, beside what they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS", "LANG") if name in os.environ},
            **SECRETS,
            "PYTHONPATH": str(SOURCE),
            "HOME": str(folder / "home"),
            "HTTPS_PROXY": f"http://user:{LOGIN}@127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
        }
        self.told = ""
        self._count = 0

    def choicewise(self, *lines: str | Sequence[str | Path], before: str = "") -> list[int | str]:
        """The exit codes of the command ``lines``; what they said and logged are files of the day."""
        place, split = self._place(), [line.split() if isinstance(line, str) else [*map(str, line)] for line in lines]
        with Path(f"{place}.out").open("wb") as out, Path(f"{place}.err").open("wb") as err:
            subprocess.run(
                [sys.executable, "-c", DRIVER.replace("{before}", before), str(place), json.dumps(split)],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=err,
                check=True,
            )
        self.told = Path(f"{place}.out").read_text() + Path(f"{place}.err").read_text()
        codes: list[int | str] = json.loads(Path(f"{place}.codes").read_text())
        return codes

    def served(self, folder: Path, *paths: str) -> None:
        """The pages of the board of ``folder`` as a reader with the token gets them."""
        place = self._place()
        line = ["serve", str(folder)]
        with Path(f"{place}.out").open("wb") as told:
            board = subprocess.Popen(
                [sys.executable, "-c", DRIVER.replace("{before}", ""), str(place), json.dumps([line])],
                cwd=self.folder,
                env=self.environment,
                stdout=told,
                stderr=told,
            )
        try:
            while b"Ctrl-C ends it" not in Path(f"{place}.out").read_bytes():
                assert board.poll() is None, Path(f"{place}.out").read_text()
                time.sleep(0.05)
            (address,) = re.findall(r"^http://127\.0\.0\.1:\d+(?=/$)", Path(f"{place}.out").read_text(), re.MULTILINE)
            token = {"Authorization": f"Bearer {SECRETS['CHOICEWISE_TOKEN']}"}
            for number, path in enumerate(paths):
                request = urllib.request.Request(f"{address}{path}", headers=token)
                with urllib.request.urlopen(request) as answer:
                    assert answer.status == 200
                    Path(f"{place}.{number}.answer").write_bytes(answer.read() + str(answer.headers).encode())
        finally:
            board.terminate()
            board.wait()

    def leaks(self) -> list[str]:
        """Every secret in anything that the day left."""
        return leaks_below(self.folder, SEARCHED)

    def _place(self) -> Path:
        self._count += 1
        (self.folder / "told").mkdir(exist_ok=True)
        return self.folder / "told" / f"{self._count:03d}"


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(tmp_path)


@pytest.mark.parametrize("how", forms(API_KEY))
def test_a_planted_secret_is_noticed(how: str) -> None:
    """In every spelling and packing; else the tests below would say nothing."""
    for around in (b"", b"x", b"xy"):
        content = around + forms(API_KEY)[how] + b"z"
        packed, column = io.BytesIO(), io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside.gz", gzip.compress(content))
        pq.write_table(pa.table({"cell": [{"deep": [content]}]}), column)
        known = {"key": API_KEY}
        assert f"a: key {how}" in {*leaks("a", content, known)}
        assert f"a!inside.gz!: key {how}" in {*leaks("a", packed.getvalue(), known)}
        if how != "in UTF-16":
            assert f"a!cells: key {how}" in {*leaks("a", column.getvalue(), known)}


def test_a_day_with_a_run_keeps_no_secret(day: Day) -> None:
    write_mmlu(day.folder / "data")
    plan = 'models = ["fake:hash", "fake:oracle", "no/model"]\ndata = ["data"]\nprotocols = ["mmlu/cloze:sum"]\n'
    (day.folder / "plan.toml").write_text(plan)
    asked = "--model fake:hash --data data --protocol mmlu/original --protocol mmlu/cloze:sum"
    codes = day.choicewise(
        f"run {asked} --dry-run",
        f"run {asked} --out run",
        f"run {asked} --out run --json",
        "report run --json",
        "report run --agreement",
        "compare run run",
        "explain run --item tides/test/0",
        "prompts --data data --protocol mmlu/original",
        "ladder mmlu/original mmlu/cloze:sum run",
        "data data",
        "check --model fake:hash",
        "page run --out page.html",
        "plot run strip --out strip.pdf",
        "export run --format items-csv --out items.csv",
        "import items.csv --out imported",
    )
    assert codes == [0] * len(codes), day.told
    assert day.choicewise("sweep plan.toml --out all") == [7]
    day.served(day.folder / "all", "/", "/board.json", "/board.csv")
    assert day.leaks() == []


def test_no_export_has_a_secret(day: Day) -> None:
    write_mmlu(day.folder / "data")
    endings = {form: form.rpartition("-")[2] if form.endswith(("csv", "parquet")) else "folder" for form in WRITERS}
    run = "run --model fake:hash --data data --protocol mmlu/original --protocol mmlu/cloze:sum --out run"
    codes = day.choicewise(run, *(f"export run --format {form} --out {form}.{end}" for form, end in endings.items()))
    ended = dict(zip(("run", *endings), codes, strict=True))
    absent = {form for form, code in ended.items() if code}
    assert absent <= {"inspect", "wandb", "mlflow", "eval-results"}, "libraries that need not be there, and no board"
    assert all((day.folder / f"{form}.{end}").exists() for form, end in endings.items() if form not in absent)
    assert day.leaks() == []


def test_a_crash_and_a_refusal_keep_no_secret(day: Day) -> None:
    write_mmlu(day.folder / "data")
    rest = "--protocol mmlu/original --out refused"
    addresses = f"https://user:{LOGIN}@example.org/data.jsonl", f"https://example.org/?api_key={quote(API_KEY)}"
    plan = day.folder.parent / "plan.toml"
    plan.write_text(f'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\ndata = ["{addresses[0]}"]\n')
    lines = [f"{verb} --model fake:hash --data {each} {rest}" for verb in ("run", "sweep") for each in addresses]
    lines += [f"sweep --model {each} --data data {rest}" for each in addresses]
    codes = day.choicewise(
        *lines, f"sweep {plan} --out refused", f"run --model fake:hash --data data {rest}", before=CRASH
    )
    assert codes == [2] * (len(lines) + 1) + ["RuntimeError"]
    assert "a fault of the program" in day.told
    assert day.leaks() == []


@pytest.fixture
def hub() -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    with hub_server.serve() as server:
        server.add("datasets", "org/sums", {"test.jsonl": jsonl(3)}, gated=True)
        server.add("datasets", "org/signed", {"test-0.parquet": _parquet()}, gated=True)
        server.add("models", "org/closed", {"config.json": "{}", "model.safetensors": b"", "tokenizer.json": "{}"})
        yield server


@pytest.mark.parametrize("planted_in", ["the environment", "its file"])
def test_the_token_of_the_hub_and_signed_addresses_are_kept_nowhere(day: Day, hub: Hub, planted_in: str) -> None:
    home = day.folder / "hub"
    day.environment |= hub_server.environment(hub, home)
    if planted_in == "its file":
        token = day.folder.parent / "token"
        token.write_text(day.environment.pop("HF_TOKEN"))
        day.environment["HF_TOKEN_PATH"] = str(token)
    named = "--model fake:hash --protocol options/cloze:sum"
    hub.echoing = True
    hub.broken["test-0.parquet"] = 1
    codes = day.choicewise(
        f"run {named} --data org/sums --out run",
        f"run {named} --data org/signed --out signed",
        "page run signed --out page.html",
    )
    assert codes == [0] * 3, day.told
    assert any("authorization" in request.headers for request in hub.requests), "the token was used"
    assert any("SIGNED" in request.path for request in hub.requests), "the signed address was used"
    hub.lost.add("model.safetensors")
    rest = "--protocol options/cloze:sum --data org/sums"
    codes = day.choicewise(
        *(f"run --model {model} {rest} --out m" for model in ("org/closed", "org/closed@v9", "no/where")),
        "run --model fake:hash --protocol options/cloze:sum --data no/where --out n",
        f"sweep --model no/where --model fake:hash {rest} --out all",
    )
    assert codes == [5, 5, 5, 3, 7], day.told
    hub.busy += [(500, "0")] * 99
    assert day.choicewise(f"run {named} --data org/sums --out busy") == [0], "what is in the cache is used"
    assert "you sent" not in day.told
    day.environment["HF_ENDPOINT"] = f"http://user:{LOGIN}@127.0.0.1:9"
    assert day.choicewise(f"run {named} --data org/other --out nowhere") == [3], day.told
    assert day.leaks() == []


def _parquet() -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in jsonl(3).splitlines()]), content)
    return content.getvalue()
