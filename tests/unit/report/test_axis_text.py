"""What changes on an axis fits into few characters and hides nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from choicewise.report.comparison import WIDTH, axes_text, change_text
from choicewise.results.outcomes import Axis
from choicewise.util.text import error, points

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)


@given(TEXTS, TEXTS)
def test_a_change_is_short_and_its_values_differ_where_they_do(left: str, right: str) -> None:
    shown = change_text(Axis("header", left, right))
    assert len(shown) <= WIDTH + len('""""')
    assert shown.startswith("header ")
    if left != right:
        one, other = shown.removeprefix("header ").split(" → ", 1)
        assert one != other


def test_short_values_are_shown_whole_and_edges_are_seen() -> None:
    assert change_text(Axis("ties", "first", "split")) == "ties first → split"
    assert change_text(Axis("answer", " {letter}", "")) == 'answer " {letter}" → ""'
    long = "The following are multiple choice questions about "
    assert (
        change_text(Axis("header", f"{long}{{subject}}.", f"{long} {{subject}}."))
        == "header …out {subject}. → …out  {subject}."
    )


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    assert axes_text([Axis("header", "\x1b[2J", "‮")]) == "header \\x1b[2J → \\u202e"


def test_of_many_axes_the_first_are_named() -> None:
    axes = [Axis(name, "1", "2") for name in ("shots", "fit", "limit", "bos", "seed")]
    assert axes_text(axes[:4]) == "shots, fit, limit, bos"
    assert axes_text(axes) == "shots, fit, limit, 2 more"


def test_points_have_a_sign_and_no_minus_before_nothing() -> None:
    assert (points(0.634), error(0.0298)) == ("+63.4", "± 3.0")
    assert points(-0.0001) == points(0.0) == "0.0"
    assert (points(-0.25), points(-0.25, "-")) == ("−25.0", "-25.0")
    assert points(float("nan")) == "-"
