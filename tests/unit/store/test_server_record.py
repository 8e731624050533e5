"""What a run folder keeps of a server, and of protocols that were refused; folders from before both are read."""

from __future__ import annotations

import json
from pathlib import Path

from choicewise.records import DatasetRecord, Manifest, ModelRecord, Selection, ServerRecord
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.jsonio import json_digest

PLAIN = Manifest(
    ModelRecord("m", "1", "float32", "cpu", 8), DatasetRecord("d", "2"), Selection(), {"p": "signature"}, {}
)
SERVER = ServerRecord("org/m", "echo", "/weights", "vLLM 0.32", "org/m", {"ab": -1.5}, 1e-4, "its answers")


def test_a_server_is_read_back_as_written(tmp_path: Path) -> None:
    said = Manifest(PLAIN.model, PLAIN.dataset, PLAIN.selection, {}, {}, server=SERVER, refused={"q": "no echo"})
    write_manifest(tmp_path, said)
    assert read_manifest(tmp_path) == said


def test_a_folder_from_before_servers_is_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, PLAIN)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    for name in ("server", "refused"):
        del content[name]
    head = {name: content.pop(name) for name in ("format", "version", "sha256")}
    path.write_text(json.dumps({**head, "sha256": json_digest(content), **content}))
    assert read_manifest(tmp_path) == PLAIN
