"""Downloads on stderr."""

import pytest

from choicewise.cli import terminal as download
from choicewise.cli import terminal as interrupt
from choicewise.cli.terminal import show_download
from choicewise.util.text import size


def test_lines_are_few_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 101.0, 111.0, 112.0])
    monkeypatch.setattr(download.time, "monotonic", lambda: next(clock))
    update = show_download()
    for done in (1_000_000, 2_000_000, 3_000_000, 4_000_000):
        update("org/name", done, 4_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "downloading org/name: 1.0 MB of 4.0 MB",
        "downloading org/name: 3.0 MB of 4.0 MB",
        "downloaded org/name: 4.0 MB",
    ]


def test_an_interrupt_ends_the_threads_that_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_pressed", True)
    with pytest.raises(KeyboardInterrupt):
        show_download()("org/name", 1, 2)


@pytest.mark.parametrize(
    ("bytes", "text"), [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1500, "1.5 kB"), (2.5e9, "2.5 GB")]
)
def test_sizes(bytes: int, text: str) -> None:
    assert size(bytes) == text
