"""Text that can be looked at without harm."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.util.text import safe, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(
            ("a b", "a b"),
            (" a  b ", "␠a␠␠b␠"),
            ("a \n b", "a␠⏎\n␠b"),
            ("\ta", "␉a"),
            ("[bold]x[/]", "[bold]x[/]"),
        ),
        *(
            ("\x1b[31mred", "\\x1b[31mred"),
            ("\x9b31m", "\\x9b31m"),
            ("right\u202eleft", "right\\u202eleft"),
        ),
        *(("\u2066x\u2069", "\\u2066x\\u2069"), ("\r\x00\x7f", "\\x0d\\x00\\x7f")),
        ("👩\u200d🚀 漢字", "👩\u200d🚀 漢字"),
    ],
)
def test_visible_shows_white_space_and_disarms_controls(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_safe_stays_on_one_line() -> None:
    assert safe("a\nb\tc\x1b") == r"a\nb\tc\x1b"


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    obeyed = re.compile(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
    )
    assert not obeyed.search(visible(text))
    assert not obeyed.search(safe(text))
    assert "\n" not in safe(text)
