"""Folders that tests read: the checkout, goldens, and real data that is not in the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDENS = ROOT / "tests" / "goldens"
SHARED = ROOT.parent / "shared" / "data"
