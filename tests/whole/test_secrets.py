"""Secrets are planted wherever they are read from, and looked for in everything that comes out of a working day. The
commands run as users run them, in processes of their own, with every library's log kept down to the last detail. A
server repeats its key in all that it says, and breaks in every way."""

import base64
import gzip
import io
import json
import os
import re
import subprocess
import sys
import traceback
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import load_model, score
from choicewise.errors import ChoicewiseError
from choicewise.ports import Writer, all_of
from tests.helpers import hub_server
from tests.helpers.hub_server import Hub, jsonl
from tests.helpers.imported_runs import write_lines
from tests.helpers.misbehaving_server import Fault, Handler, Received, Server
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.planted_secrets import API_KEY, LOGIN, SECRETS, SIGNED, forms, leaks, leaks_below
from tests.helpers.processes import eventually
from tests.helpers.served_model import text_of
from tests.helpers.server_faults import HTML, each_choice, redirect
from tests.paths import ROOT

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
        self.folder, self.told, self._count = folder, "", 0
        (folder / "told").mkdir()
        self.environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "OMP_NUM_THREADS", "LANG")
                if name in os.environ
            },
            **SECRETS,
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(folder / "home"),
            "HTTPS_PROXY": f"http://user:{LOGIN}@127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
        }

    def begin(
        self, lines: Sequence[Sequence[str]], before: str = ""
    ) -> tuple[subprocess.Popen[bytes], str]:
        """Commands under way, and how the paths of what they said and logged begin."""
        self._count += 1
        place = f"{self.folder}/told/{self._count:03d}"
        code = [sys.executable, "-c", DRIVER.replace("{before}", before), place, json.dumps(lines)]
        with Path(f"{place}.out").open("wb") as out, Path(f"{place}.err").open("wb") as err:
            return subprocess.Popen(
                code, cwd=self.folder, env=self.environment, stdout=out, stderr=err
            ), place

    def choicewise(self, *lines: str, before: str = "") -> list[int | str]:
        """The exit codes of the command ``lines``."""
        process, place = self.begin([line.split() for line in lines], before)
        ended = process.wait()
        self.told = Path(f"{place}.out").read_text() + Path(f"{place}.err").read_text()
        assert ended == 0, self.told
        codes: list[int | str] = json.loads(Path(f"{place}.codes").read_text())
        return codes

    def served(self, folder: Path, *paths: str) -> None:
        """The pages of the board of ``folder`` as a reader with the token gets them."""
        board, place = self.begin([["serve", str(folder)]])
        out, err = Path(f"{place}.out"), Path(f"{place}.err")
        try:
            eventually(
                lambda: b"Ctrl-C" in out.read_bytes() + err.read_bytes() or board.poll() is not None
            )
            assert board.poll() is None, out.read_text() + err.read_text()
            (address,) = re.findall(
                r"^http://127\.0\.0\.1:\d+(?=/$)", out.read_text(), re.MULTILINE
            )
            token = {"Authorization": f"Bearer {SECRETS['CHOICEWISE_TOKEN']}"}
            for number, path in enumerate(paths):
                with urllib.request.urlopen(
                    urllib.request.Request(f"{address}{path}", headers=token)
                ) as answer:
                    assert answer.status == 200
                    Path(f"{place}.{number}.answer").write_bytes(
                        answer.read() + str(answer.headers).encode()
                    )
        finally:
            board.terminate()
            board.wait()

    def leaks(self) -> list[str]:
        """Every secret in anything that the day left."""
        return leaks_below(self.folder, SEARCHED)


@pytest.fixture
def day(tmp_path: Path) -> Day:
    write_mmlu(tmp_path / "data")
    return Day(tmp_path)


@pytest.mark.parametrize("how", forms(API_KEY))
def test_a_planted_secret_is_noticed(how: str) -> None:
    """In every spelling and packing; else the tests below would say nothing."""
    known = {"key": API_KEY}
    for around in (b"", b"x", b"xy"):
        content = around + forms(API_KEY)[how] + b"z"
        packed, column = io.BytesIO(), io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside.gz", gzip.compress(content))
        pq.write_table(pa.table({"cell": [{"deep": [content]}]}), column)
        assert f"a: key {how}" in {*leaks("a", content, known)}
        assert f"a!inside.gz!: key {how}" in {*leaks("a", packed.getvalue(), known)}
        assert how == "in UTF-16" or f"a!cells: key {how}" in {
            *leaks("a", column.getvalue(), known)
        }


def test_a_day_with_a_run_keeps_no_secret(day: Day) -> None:
    plan = 'models = ["fake:hash", "fake:oracle", "no/model"]\ndata = ["data"]\nprotocols = ["mmlu/cloze:sum"]\n'
    (day.folder / "plan.toml").write_text(plan)
    asked = "--model fake:hash --data data --protocol mmlu/original --protocol mmlu/cloze:sum"
    codes = day.choicewise(
        f"run {asked} --dry-run",
        f"run {asked} --out run",
        f"run {asked} --out run --json",
        "report run --json",
        "report run agreement",
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
    forms = [writer.name for writer in all_of(Writer)]
    endings = {
        form: form.rpartition("-")[2] if form.endswith(("csv", "parquet")) else "folder"
        for form in forms
    }
    run = "run --model fake:hash --data data --protocol mmlu/original --protocol mmlu/cloze:sum --out run"
    codes = day.choicewise(
        run, *(f"export run --format {form} --out {form}.{end}" for form, end in endings.items())
    )
    absent = {form for form, code in zip(("run", *endings), codes, strict=True) if code}
    assert absent <= {"inspect", "wandb", "mlflow", "eval-results"}, (
        "libraries that need not be there, and no board"
    )
    assert all(
        (day.folder / f"{form}.{end}").exists()
        for form, end in endings.items()
        if form not in absent
    )
    assert day.leaks() == []


def test_a_crash_and_a_refusal_keep_no_secret(day: Day) -> None:
    rest = "--protocol mmlu/original --out refused"
    addresses = (
        f"https://user:{LOGIN}@example.org/data.jsonl",
        f"https://example.org/?api_key={quote(API_KEY)}",
    )
    plan = day.folder.parent / "plan.toml"
    plan.write_text(
        f'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\ndata = ["{addresses[0]}"]\n'
    )
    lines = [
        f"{verb} --model fake:hash --data {each} {rest}"
        for verb in ("run", "sweep")
        for each in addresses
    ]
    lines += [f"sweep --model {each} --data data {rest}" for each in addresses] + [
        f"sweep {plan} --out refused"
    ]
    codes = day.choicewise(*lines, f"run --model fake:hash --data data {rest}", before=CRASH)
    assert codes == [2] * len(lines) + ["RuntimeError"]
    assert "fault of the program" in day.told
    assert day.leaks() == []


@pytest.fixture
def hub() -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    table = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist([json.loads(line) for line in jsonl(3).splitlines()]), table
    )
    with hub_server.serve() as server:
        server.add("datasets", "org/sums", {"test.jsonl": jsonl(3)}, gated=True)
        server.add("datasets", "org/signed", {"test-0.parquet": table.getvalue()}, gated=True)
        server.add(
            "models",
            "org/closed",
            {"config.json": "{}", "model.safetensors": b"", "tokenizer.json": "{}"},
        )
        yield server


@pytest.mark.parametrize("planted_in", ["the environment", "its file"])
def test_the_token_of_the_hub_and_signed_addresses_are_kept_nowhere(
    day: Day, hub: Hub, planted_in: str
) -> None:
    day.environment |= hub_server.environment(hub, day.folder / "hub")
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
        *(
            f"run --model {model} {rest} --out m"
            for model in ("org/closed", "org/closed@v9", "no/where")
        ),
        "run --model fake:hash --protocol options/cloze:sum --data no/where --out n",
        f"sweep --model no/where --model fake:hash {rest} --out all",
    )
    assert codes == [5, 5, 5, 3, 7], day.told
    hub.busy += [(500, "0")] * 99
    assert day.choicewise(f"run {named} --data org/sums --out busy") == [0], (
        "what is in the cache is used"
    )
    assert "you sent" not in day.told
    day.environment["HF_ENDPOINT"] = f"http://user:{LOGIN}@127.0.0.1:9"
    assert day.choicewise(f"run {named} --data org/other --out nowhere") == [3], day.told
    assert day.leaks() == []


HALF = API_KEY[: len(API_KEY) // 2 + 1]  # as services cut keys that they show


def said(handler: Handler) -> str:
    """All headers of the request, the key among them as it is, in base64, percent-encoded, and its first half."""
    sent = dict(handler.headers.items())
    packed = base64.b64encode(str(sent.get("Authorization")).encode()).decode()
    encoded = "".join(f"%{byte:02x}" for byte in API_KEY.encode())
    return f"you sent {HALF}..., {encoded}, {packed}, which is {sent.get('Authorization')}, {json.dumps(sent)}"


def echo(status: int, body: Callable[[str], bytes], **headers: str) -> Fault:
    """A response whose body, made of what was sent, and headers repeat the request."""

    def wire(handler: Handler, _: bytes) -> None:
        told = said(handler)
        handler.send(status, body(told), X_Request_Id=told, **headers)

    return Fault(wire=wire)


def as_error(told: str) -> bytes:
    return json.dumps({"error": {"message": told, "type": told, "code": told}}).encode()


ONE = {
    "400": echo(400, as_error),
    "413": echo(413, str.encode),
    "500": echo(500, as_error),
    "502 of HTML": echo(502, lambda told: HTML + told.encode(), Content_Type="text/html"),
    "200 with an error": echo(200, as_error),
    "200 of HTML": echo(200, lambda told: HTML + told.encode(), Content_Type="text/html"),
    "a key for a list": each_choice(
        lambda choice: {**choice, "logprobs": API_KEY, "prompt_logprobs": HALF}
    ),
    "200, cut off": echo(
        200, lambda told: b'{"choices": [{"text": ' + json.dumps(told).encode()[:-1]
    ),
}
"""What is about one request, whose item is missing with what the server said as the reason."""

ALL = {
    "401": echo(401, str.encode),
    "403 of HTML": echo(403, lambda told: HTML + told.encode()),
    "404": echo(404, as_error),
    "418": echo(418, str.encode),
    "429 for an hour": echo(429, as_error, Retry_After="3600"),
    "another model": Fault(answer=lambda answer: {**answer, "model": API_KEY}),
    "a redirect": redirect(f"http://user:{API_KEY}@127.0.0.1:1/{API_KEY}?key={API_KEY}"),
}
"""What is about all requests, and ends the run."""

NO_PAUSES = (
    "import stamina; stamina.set_testing(True, attempts=20)"  # makes a command try again at once
)


@pytest.fixture
def keyed(server: Server) -> Server:
    """A server that wants the key."""
    server.key = API_KEY
    return server


def about(word: str) -> Callable[[Received], bool]:
    """Whether a request is about a text with the word, and no probe."""

    def concerned(request: Received) -> bool:
        prompt = (request.body or {}).get("prompt", "")
        return word in (prompt if isinstance(prompt, str) else text_of(prompt))

    return concerned


def write_questions(file: Path, questions: list[str]) -> None:
    write_lines(
        file, [{"question": each, "choices": ["here", "there"], "answer": 0} for each in questions]
    )


def test_what_a_server_repeats_is_kept_without_the_key(day: Day, keyed: Server) -> None:
    """It refuses some questions and answers others, so that what it says becomes the reason of missing items."""
    questions = [
        *(f"Where is <{name}>?" for name in ONE),
        *(f"Who is {number}?" for number in range(9)),
    ]
    write_questions(day.folder / "data.jsonl", questions)
    for name, fault in ONE.items():
        keyed.when(about(f"<{name}>"), fault)
    model = f"--model {keyed.address} --tokenizer bytes"
    codes = day.choicewise(
        f"check {model}",
        f"run {model} --data data.jsonl --protocol options/cloze:sum --out run",
        "report run --json",
        "page run --out page.html",
        "export run --format csv --out rows.csv",
        "explain run --item test/0",
        before=NO_PAUSES,
    )
    assert codes[1:] == [0] * 5, day.told
    assert f"Bearer {API_KEY}" in {
        request.headers.get("authorization") for request in keyed.requests
    }
    assert "you sent" in day.told, "what the server says of a missing item is shown"
    assert day.leaks() == leaks_below(day.folder, {"half of the key": HALF}) == []


def test_a_server_that_ends_a_run_is_told_without_the_key(day: Day, keyed: Server) -> None:
    lines = []
    for number, (name, fault) in enumerate(ALL.items()):
        write_questions(
            day.folder / f"{number}.jsonl", [f"Where is <{name}>?", f"Who is <{name}>?"]
        )
        keyed.when(about(f"<{name}>"), fault)
        asked = (
            f"--tokenizer bytes --data {number}.jsonl --protocol options/cloze:sum --out {number}"
        )
        lines.append(f"run --model {keyed.address} {asked}")
    assert day.choicewise(*lines, before=NO_PAUSES) == [5] * len(lines), day.told
    assert day.leaks() == []


@pytest.mark.usefixtures("no_pauses")
def test_no_frame_of_an_error_shows_the_key(keyed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As error trackers and rich tracebacks do, with every local variable of every frame and every earlier error."""
    monkeypatch.setenv("CHOICEWISE_API_KEY", API_KEY)
    for name, fault in {**ALL, "500": ONE["500"]}.items():
        keyed.always(fault)
        with pytest.raises(ChoicewiseError) as raised:
            score(load_model(keyed.address, tokenizer="bytes"), "Where is it?", [" here", " there"])
        error = raised.value
        seen = "".join(
            traceback.TracebackException.from_exception(error, capture_locals=True).format()
        )
        seen += (
            repr(error) + str(error) + repr(vars(error)) + repr(getattr(error, "__notes__", None))
        )
        assert [*leaks(name, seen.encode(), SEARCHED)] == []
