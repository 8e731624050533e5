"""A server on loopback that speaks the Hub's protocol: descriptions and listings of repositories, files with redirects
to another host, ETags and ranges, gated and missing ones, and all that goes wrong on the way. What is answered follows
what ``huggingface_hub`` 2.4 reads: ``X-Repo-Commit``, ``X-Linked-Etag``, ``X-Linked-Size``, ``X-Error-Code``."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.bundled import MODELS
from choicewise.data import hub as hub_reach

LARGE = (".safetensors", ".parquet", ".bin")  # endings of files that lie on another host

PATIENCE = 600  # seconds that its clients wait: a bound for a hang, on a machine however busy


@dataclass
class Repository:
    """Commits by hash, each with its files by path; ``refs``: the commit that a branch or tag is."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def commit(self, files: Mapping[str, bytes | str], branch: str = "main") -> str:
        """The hash of a new commit with ``files``, which the branch is now."""
        content = {
            path: data.encode() if isinstance(data, str) else data for path, data in files.items()
        }
        name = hashlib.sha1(f"{sorted(content.items())} {len(self.commits)}".encode()).hexdigest()
        self.commits[name] = content
        self.refs[branch] = name
        return name


@dataclass
class Request:
    """What was asked: of which of the two hosts, and with which headers, their names in lower case."""

    host: str
    method: str
    path: str
    headers: Mapping[str, str]


class Hub:
    """The server: ``endpoint`` is its address, ``requests`` what was asked of it so far."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.requests: list[Request] = []
        self.busy: list[
            tuple[int, str]
        ] = []  # answers for the next requests of descriptions: status and Retry-After
        self.broken: dict[
            str, int
        ] = {}  # how often the download of a file ends half way, by its path
        self.lost: set[str] = set()  # files that are listed and not there
        self.echoing = False
        """Whether refusals repeat the headers of the request, in their text and in their own headers."""
        self.blobs: dict[str, bytes] = {}
        self.endpoint = self.other_host = ""

    def add(
        self, kind: str, name: str, files: Mapping[str, bytes | str], **more: Any
    ) -> Repository:
        """A new repository of the ``kind`` models or datasets, with ``files`` on its branch main."""
        repository = self.repositories[kind, name] = Repository(**more)
        repository.commit(files)
        return repository

    def downloads(self) -> list[str]:
        """The paths of the files whose content was asked for."""
        got = [each.path for each in self.requests if each.method == "GET"]
        direct = [
            path.partition("/resolve/")[2].partition("/")[2] for path in got if "/resolve/" in path
        ]
        return direct + [path.rpartition("file=")[2] for path in got if "file=" in path]


@contextmanager
def serve() -> Iterator[Hub]:
    """The two hosts, for as long as the block lasts."""
    hub = Hub()
    hosts = [
        ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, name)) for name in ("hub", "other")
    ]
    hub.endpoint, hub.other_host = (f"http://127.0.0.1:{host.server_address[1]}" for host in hosts)
    for host in hosts:
        threading.Thread(target=host.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield hub
    finally:
        for host in hosts:
            host.shutdown()  # returns when it serves no more
            host.server_close()


def etag(path: str, content: bytes) -> str:
    """What the Hub calls the content: sha256 of a large file, else the name that git gives it."""
    if path.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _handler(hub: Hub, host: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # or every body waits for the client to acknowledge the headers
        )

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(
                Request(host, self.command, unquote(self.path), _lower(self.headers))
            )
            if host == "other":
                self._content(hub.blobs[path.removeprefix("/")], {})
            elif match := re.fullmatch(
                r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^?]+))?", path
            ):
                self._described(*match.groups())
            elif match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._resolved("datasets" if match[1] else "models", *match.groups()[1:])
            else:
                self._send(404, b"", {})

        do_HEAD = do_GET

        def _described(self, kind: str, name: str, what: str | None, revision: str | None) -> None:
            if hub.busy:
                status, pause = hub.busy.pop(0)
                return self._send(status, b"busy", {"Retry-After": pause})
            if (known := self._known(kind, name, revision or "main")) is None:
                return
            commit, files = known
            if what != "tree":
                described = {"id": name, "sha": commit, "siblings": [], "tags": []}
                return self._send(200, json.dumps(described).encode(), _JSON)
            listed = []
            for path, content in files.items():
                about: dict[str, Any] = {"size": len(content), "oid": etag("", content)}
                if path.endswith(LARGE):
                    about["lfs"] = {
                        "oid": etag(path, content),
                        "size": len(content),
                        "pointerSize": 130,
                    }
                listed.append({"type": "file", "path": path, **about})
            self._send(200, json.dumps(listed).encode(), _JSON)

        def _resolved(self, kind: str, name: str, revision: str, path: str) -> None:
            if (known := self._known(kind, name, revision)) is None:
                return
            commit, files = known
            if (
                hub.repositories[kind, name].gated
                and self.headers.get("Authorization") != "Bearer hf_opens"
            ):
                text = f"Access to {kind} {name} is restricted."
                return self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": text})
            if path not in files or path in hub.lost:
                return self._send(
                    404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
                )
            content = files[path]
            name = etag(path, content)
            headers = {"X-Repo-Commit": commit, "ETag": f'"{name}"', "Accept-Ranges": "bytes"}
            if not path.endswith(LARGE):
                return self._content(content, headers, path)
            hub.blobs[name] = content
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content))}
            location = f"{hub.other_host}/{name}?signature=SIGNED&file={path}"
            self._send(302, b"", {**headers, "Location": location})

        def _known(
            self, kind: str, name: str, revision: str
        ) -> tuple[str, dict[str, bytes]] | None:
            repository = hub.repositories.get((kind, name))
            if repository is None:
                return self._send(
                    401,
                    b"",
                    {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                )
            commit = repository.refs.get(revision, revision)
            if commit not in repository.commits:
                missing = {
                    "X-Error-Code": "RevisionNotFound",
                    "X-Error-Message": f"Invalid rev {revision}",
                }
                return self._send(404, b"", missing)
            return commit, repository.commits[commit]

        def _content(self, content: bytes, headers: Mapping[str, str], path: str = "") -> None:
            name = path or unquote(self.path).rpartition("file=")[2]
            start, total = 0, len(content)
            if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
                start = int(wanted[1])
                headers = {**headers, "Content-Range": f"bytes {start}-{total - 1}/{total}"}
            rest = content[start:]
            if self.command == "GET" and hub.broken.get(name, 0):
                hub.broken[name] -= 1
                self._send(206 if start else 200, rest[: len(rest) // 2], headers, length=len(rest))
                self.close_connection = True
                return self.connection.shutdown(2)
            self._send(206 if start else 200, rest, headers)

        def _send(
            self, status: int, body: bytes, headers: Mapping[str, str], length: int | None = None
        ) -> None:
            if hub.echoing and status >= 400:
                said = f"you sent {_lower(self.headers)}"
                body, headers = (
                    said.encode(),
                    {**headers, "X-Error-Message": said, "X-Request-Id": said},
                )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
                self.wfile.flush()

    return Handler


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


_JSON = {"Content-Type": "application/json"}


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """What a process of its own needs in its environment to take ``hub`` for the Hub, with its cache in ``home``."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "NO_PROXY": "*"}
    own |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return own | dict.fromkeys(("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"), str(PATIENCE))


@contextmanager
def hub_of_this_process(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """A server that this process takes for the Hub; ``huggingface_hub`` reads its environment only when imported."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import close_session, constants, hf_api

    with serve() as hub:
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        changed = {
            "ENDPOINT": hub.endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint
            + "/{repo_id}/resolve/{revision}/{filename}",
            **{
                "HF_HUB_CACHE": str(home / "hub"),
                "HF_TOKEN_PATH": str(home / "token"),
                "HF_HUB_OFFLINE": False,
            },
            **dict.fromkeys(("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"), PATIENCE),
        }
        for name, value in changed.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(hf_api.api, "endpoint", hub.endpoint)
        monkeypatch.setattr(hub_reach, "_answers", {})
        close_session()
        try:
            yield hub
        finally:
            close_session()


FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
MODEL = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir())}
WITHOUT_WEIGHTS = {name: content for name, content in MODEL.items() if name != "model.safetensors"}
OWN_CODE = json.dumps(
    {"model_type": "merrowformer", "auto_map": {"AutoModelForCausalLM": "modeling.Merrow"}}
)
"""A configuration of a model that needs code of its own."""


def row(number: int) -> dict[str, Any]:
    return {
        "question": f"What is {number} + 1?",
        "choices": [f"{number + 1} it is", "none"],
        "answer": 0,
    }


def parquet(*numbers: int) -> bytes:
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist([row(number) for number in numbers]), buffer)
    return buffer.getvalue()


def jsonl(*numbers: int) -> str:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers)
