"""Tests of the docs import the module beside the docs that reads and runs their examples."""

import sys

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "docs"))
