"""Kill -9 and a full disk at write boundaries: whatever happens, the same line gives what an undisturbed run gives.

The script does all boundaries and 200 runs; here it does some of each, which takes a minute.
"""

import re
import subprocess
import sys

import pytest

from tests.paths import ROOT

SCRIPT = ROOT / "benchmarks" / "kills.py"


@pytest.mark.skipif(sys.platform != "linux", reason="audit hooks are told of the same steps on Linux alone")
def test_nothing_is_lost_or_doubled() -> None:
    words = ["--every", "29", "--runs", "8"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"'(?:kill|tear|full)': (\d+)", done.stdout)
    assert len(counts) == 12
    assert all(int(count) > 0 for count in counts), done.stdout
    assert ", 0 differences from the undisturbed ones" in done.stdout
