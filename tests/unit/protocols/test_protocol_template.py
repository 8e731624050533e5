"""Filling templates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import fill

HOLES = st.fixed_dictionaries({"question": st.text(), "choice": st.sampled_from(["{question}", "{{", "}", "\\1", ""])})
PIECES = st.lists(st.sampled_from(["{question}", "{choice}", "{{", "}}", "Answer:", "\n", " "]) | st.text("ab:!"))


@given(PIECES, HOLES)
def test_fill_agrees_with_str_format(pieces: list[str], holes: dict[str, str]) -> None:
    template = "".join(pieces)
    assert fill(template, holes) == template.format(**holes)


def test_fill_never_reads_filled_text_again() -> None:
    assert fill("{a}{b}", {"a": "{b}", "b": "{a}"}) == "{b}{a}"
    assert fill("{{a}} {a}", {"a": "{{x}}"}) == "{a} {{x}}"


@pytest.mark.parametrize(
    "template", ["{quest}", "{question!r}", "{question:>9}", "{question.upper}", "{}", "{ question}"]
)
def test_fill_names_axis_and_hole_when_nothing_fills_it(template: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        fill(template, {"question": "?", "letter": "A"}, axis="option")
    message = f"axis option has a hole {template} that nothing fills; known are {{question}}, {{letter}}"
    assert message in str(caught.value)


@pytest.mark.parametrize(("template", "brace"), [("{", "{"), ("a}", "}"), ("{{{", "{"), ("{a{b}}", "{")])
def test_fill_refuses_lone_braces(template: str, brace: str) -> None:
    with pytest.raises(ProtocolError, match=f"axis header has a lone '{brace}'; write '{brace * 2}'"):
        fill(template, {"b": ""}, axis="header")
