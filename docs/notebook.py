"""Runs the notebook again, in a folder of its own, and keeps its outputs in docs/notebook.ipynb.

python docs/notebook.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "notebook.ipynb"
KEPT = ("image/svg+xml", "text/plain")
"""What is kept of an output: what the page of the site shows."""


def executed(folder: Path) -> Any:
    """The notebook with the outputs that its cells give in ``folder``; an error in a cell is an error here."""
    notebook = nbformat.read(PLACE, as_version=4)
    os.environ |= {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    os.environ |= {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "TRANSFORMERS_VERBOSITY": "error"}
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [
                kept(output) for output in cell.outputs if output.get("name") != "stderr"
            ]
    return notebook


def kept(output: Any) -> Any:
    """An output without what the page has no use for."""
    if "data" in output:
        output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
    return output


def texts(notebook: Any) -> list[str]:
    """What the cells print or show as text, in order."""
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    return [
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        for output in outputs
    ]


def main() -> None:
    """Run the notebook and write it."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Path(folder))
    nbformat.write(notebook, PLACE)


if __name__ == "__main__":
    main()
