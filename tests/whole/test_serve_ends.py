"""`choicewise serve` ends with all that it started, whatever ends it; Ctrl-C is tested in tests/served."""

import signal
import sys

import pytest

from tests.helpers.board import served_until
from tests.helpers.study import Study


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed on Linux alone")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_process_outlives_the_command(study: Study, name: str) -> None:
    code, told, remaining = served_until(getattr(signal, name), study.hash)
    assert (code, remaining) == (-signal.SIGKILL if name == "SIGKILL" else 0, [])
    assert "Traceback" not in told
