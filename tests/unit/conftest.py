"""No test in here starts a process, opens a connection or loads torch, but for those marked ``costly``."""

import sys
from collections.abc import Iterator

import pytest

REFUSED = {
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.system",
    "socket.connect",
    "socket.bind",
}
HEAVY = {"torch", "transformers"}
running = False


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if running and (event in REFUSED or (event == "import" and arguments[0] in HEAVY)):
        what = f"import of {arguments[0]}" if event == "import" else event
        pytest.fail(f"{what} in tests/unit; tests/README.md says where this test belongs")


sys.addaudithook(refuse)


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    global running
    running = request.node.get_closest_marker("costly") is None
    yield
    running = False
