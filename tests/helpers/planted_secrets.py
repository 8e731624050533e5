"""Secrets that tests plant, and the search for them in everything that was written."""

import base64
import gzip
import html
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow.parquet as pq

API_KEY = "sk-pl4nted/API+key==q7Zw2"  # with signs that URLs and JSON may spell otherwise

SECRETS: Mapping[str, str] = {
    "CHOICEWISE_API_KEY": API_KEY,
    "OPENAI_API_KEY": "sk-pl4nted-openai-88xT",
    "HF_TOKEN": "hf_opens",
    "CHOICEWISE_TOKEN": "board-pl4nted-token-91Qa",
    "WANDB_API_KEY": "w4nDb" * 8,
    "MLFLOW_TRACKING_PASSWORD": "mlflow-pl4nted-word-33",
    "MLFLOW_TRACKING_TOKEN": "mlflow-pl4nted-token-34",
    "AWS_SECRET_ACCESS_KEY": "aws/pl4nted/secret+55",
}
"""Environment variable → what is in it; the token of the Hub is the one that opens ``tests.helpers.hub_server``."""

LOGIN = "proxy-pl4nted-login-72"  # the password of the proxy that the environment names

SIGNED = "signature=SIGNED"  # the query of the signed addresses that the Hub of the tests gives out


def forms(secret: str) -> dict[str, bytes]:
    """How it is called → a spelling of ``secret`` that a file may hold."""
    spelled = {
        "as it is": secret,
        "in JSON": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "in a URL": quote(secret, safe=""),
        "in a form": quote_plus(secret),
        "in HTML": html.escape(secret),
        "percent-encoded": "".join(f"%{byte:02x}" for byte in secret.encode()),
        "backwards": secret[::-1],
        "in hexadecimal": secret.encode().hex(),
    }
    coded = {name: text.encode() for name, text in spelled.items()}
    coded["in UTF-16"] = secret.encode("utf-16-le")
    for offset in range(3):  # where it begins among the groups of three bytes that base64 encodes
        letters = base64.b64encode(b"\0" * offset + secret.encode())
        whole = letters[(0, 2, 3)[offset] :].removesuffix(b"=").removesuffix(b"=")
        inner = (
            whole[:-1] if len(whole) < len(letters) else whole
        )  # the last one depends on what follows
        coded[f"in base64, {offset}"] = inner
        coded[f"in base64 of URLs, {offset}"] = inner.translate(bytes.maketrans(b"+/", b"-_"))
    return coded


def leaks(name: str, content: bytes, secrets: Mapping[str, str]) -> Iterator[str]:
    """``where: which, how`` of every one of ``secrets`` in ``content``, also within what is packed in it."""
    for where, part in unpacked(name, content):
        for which, secret in secrets.items():
            for how, spelling in forms(secret).items():
                if spelling in part:
                    yield f"{where}: {which} {how}"


def leaks_below(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """The same of every file below ``folder``, and of every name of a file or folder."""
    every = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    files = {name: path for name, path in every.items() if path.is_file() and not path.is_symlink()}
    contents = [
        ("names", "\n".join(every).encode()),
        *((name, path.read_bytes()) for name, path in files.items()),
    ]
    return [leak for name, content in contents for leak in leaks(name, content, secrets)]


def unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """(where, bytes) of ``content`` itself and of all that is packed in it, at any depth."""
    yield name, content
    if content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.infolist():
                yield from unpacked(f"{name}!{member.filename}", archive.read(member))
    elif content.startswith(b"\x1f\x8b"):
        yield from unpacked(f"{name}!", gzip.decompress(content))
    elif content.startswith(b"PAR1"):
        yield f"{name}!cells", _cells(content)
    elif content.startswith(b"%PDF"):
        for number, part in enumerate(content.split(b"stream")[1:]):
            with suppress(zlib.error):
                yield f"{name}!{number}", zlib.decompressobj().decompress(part.lstrip(b"\r\n"))


def _cells(content: bytes) -> bytes:
    """Every value of a Parquet file, its names and its notes."""
    table = pq.read_table(io.BytesIO(content))
    notes = [part for pair in (table.schema.metadata or {}).items() for part in pair]
    return b"\n".join([*notes, *_leaves(table.to_pylist())])


def _leaves(value: object) -> Iterator[bytes]:
    match value:
        case dict():
            yield from (
                leaf
                for name, each in value.items()
                for leaf in (*_leaves(str(name)), *_leaves(each))
            )
        case list():
            yield from (leaf for each in value for leaf in _leaves(each))
        case bytes():
            yield value
        case str():
            yield value.encode("utf-8", "surrogatepass")
