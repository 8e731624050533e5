"""Thought and answer in generated text: every shape that tools disagree about, and any text at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.questions import EOS, LENGTH, STOP, Generation, StopSearch
from choicewise.thoughts import (
    ANALYSIS,
    ENDS,
    TAGS,
    Cuttable,
    Parts,
    answer,
    cuttable,
    left_open,
    may_begin,
    split,
)
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids

THOUGHT, FINAL = (
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)


@pytest.mark.parametrize(("begin", "end"), [*TAGS.items(), (THOUGHT, FINAL)])
def test_the_four_shapes(begin: str, end: str) -> None:
    """Closed, opened by the prompt, cut, and two blocks: what eight tools do in seven ways."""
    assert answer(f"{begin}a{end}b") == "b"
    assert answer(f"a{end}b", begin) == "b"
    assert answer(f"{begin}a") is None
    assert answer("a", begin) is None
    assert answer(f"{begin}a{end}x\n{begin}c{end}b") == "x\nb"


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("b", "", "b"),
        ("", "", ""),
        ("", "<think>", None),
        ("a</think>b", "", "b"),  # a prompt that nobody saw opened it
        ("<think>a</think>", "", ""),
        ("\n <think>a</think>b", "", "\n b"),
        ("Sure. <think>a</think>b", "", "Sure. b"),
        ("<think>a</think>x<think>c</think>b", "", "xb"),
        ("<think>a</think>x\n<think>c", "", None),
        ("<think>a</think><think>c", "", None),
        ("<think>a</think>B, without <think>", "", "B, without <think>"),
        ("<think>a</think>B </think> too", "", "B </think> too"),
        ("<think>[THINK]</think>b", "", "b"),
        ("<think><think>a</think>b", "", "b"),
        ("a</think></think>b", "<think>", "b"),
        ("<think>é 漢</think>ü", "", "ü"),
        (f"hm{FINAL}B<|return|>", ANALYSIS, "B"),
        (f"{THOUGHT}hm<|end|><|start|>assistant<|channel|>commentary<|message|>B", "", None),
        (f"{THOUGHT}hm<|end|><|channel|>final <|constrain|>json<|message|>B<|return|>", "", "B"),
        (f"{THOUGHT}hm{FINAL}", "", ""),
    ],
)
def test_further_shapes(text: str, opened: str, expected: str | None) -> None:
    assert answer(text, opened) == expected


PLAIN = st.text(st.characters(exclude_characters="<◁[", exclude_categories=["Cs"]), max_size=20)


@given(
    thought=PLAIN,
    said=PLAIN,
    tag=st.sampled_from([*TAGS]),
    opened=st.booleans(),
    cut=st.integers(0, 80),
)
def test_an_answer_is_never_thought(
    thought: str, said: str, tag: str, opened: bool, cut: int
) -> None:
    whole = ("" if opened else tag) + thought + TAGS[tag] + said
    asked = tag if opened else ""
    assert answer(whole, asked) == said
    begun = whole[:cut]
    spelled = begun.encode()
    if len(begun) < len(whole) - len(said):  # the thought does not end
        assert answer(begun, asked) is None or (not opened and len(begun) < len(tag))
    else:
        assert answer(begun, asked) == said[: len(begun) - (len(whole) - len(said))]
    parts = split(spelled, asked)
    assert sorted([*parts.thoughts, *parts.answers]) == sorted({*parts.thoughts, *parts.answers})
    assert sum(end - start for start, end in (*parts.thoughts, *parts.answers)) == len(spelled)


def test_what_a_prompt_leaves_open() -> None:
    assert [left_open(f"user\nassistant\n{tag}\n") for tag in TAGS] == [*TAGS]
    assert left_open(f"<|start|>assistant{THOUGHT}") == ANALYSIS
    assert left_open("assistant\n<think>\n<think>\n") == "<think>"
    for closed in (
        "assistant\n<think>\n\n</think>\n\n",
        "what is <think>?",
        "<think>\nThe answer is",
        "",
    ):
        assert left_open(closed) == ""
    assert may_begin("{% if enable_thinking %}<think>{% endif %}")
    assert may_begin("<|start|>assistant<|channel|>")
    assert not may_begin("{{ messages }}")


def asked(opened: str | None = "", limit: int = 40, **settings: object) -> Generation:
    return Generation(ids(1), limit, (b"\n\n",), opened=opened, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "opened", "kept"),
    [
        ("<think>a\n\nb</think>c\n\nd", "", "<think>a\n\nb</think>c\n"),
        ("a\n\nb</think>c\n\nd", "<think>", "a\n\nb</think>c\n"),
        ("a\n\nb", "<think>", "a\n\nb"),
        ("c\n\nd", "", "c\n"),
        ("<think>a\n\nb</think>c", None, "<think>a\n"),  # nobody says that this model may think
    ],
)
def test_stops_count_after_the_thought_alone(text: str, opened: str | None, kept: str) -> None:
    table = ByteTokenizer().token_bytes
    tokens = [*text.encode()]
    generation = asked(opened)
    assert bytes(tokens[: generation.before_stop(tokens, table)]).decode() == kept


PIECES = (
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<th", "ink>", "\n", "\n\n", " ", "a", "stop"),
    *(
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        "<|end|>",
        "<|return|>",
        "<|chan",
        "nel|>",
    ),
)


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=14),
    opened=st.sampled_from([None, "", "<think>", "<|channel|>analysis<|message|>"]),
    stops=st.sampled_from([(b"\n\n",), (b"stop", b"a\n"), (b"<|end|>",), ()]),
)
def test_a_stop_is_found_in_new_bytes_as_in_the_whole_text(
    pieces: list[str], opened: str | None, stops: tuple[bytes, ...]
) -> None:
    generation = Generation(ids(1), 40, stops, opened=opened)
    search = StopSearch(generation)
    text = b""
    for piece in pieces:
        text += piece.encode()
        is_stopped = search.add(piece.encode())
        assert is_stopped == generation.ends_in(text)
        # The generation is at its end, so that nothing is searched any more.
        if is_stopped:
            break


def test_a_long_thought_is_not_read_anew_at_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(text: bytes, opened: str) -> Parts:
        read.append(len(text))
        return split(text, opened)

    monkeypatch.setattr("choicewise.questions.split", counted)
    tokens = [*(b"word\n\n" * 2000), *b"</think>A\n\n"]
    count = asked("<think>").before_stop(tokens, ByteTokenizer().token_bytes)
    assert count == len(tokens) - 1
    assert len(read) < 20


def test_special_tokens_mark_a_thought_by_their_names() -> None:
    """Which stand for no bytes, so that a stop in the thought would not be told from one in the answer."""
    table = [*(bytes([byte]) for byte in range(256)), b"", b""]
    generation = asked(marks={256: b"[THINK]", 257: b"[/THINK]"})
    tokens = [256, *b"a\n\nb", 257, *b"c\n\nd"]
    assert generation.before_stop(tokens, table) == tokens.index(257) + 3
    assert asked(None).before_stop(tokens, table) == 3
    assert b"[/THINK]" in ENDS


def test_why_a_generation_ended() -> None:
    table, stop = ByteTokenizer().token_bytes, (b"\n",)
    ended = [
        (Generation(ids(1), 3), [97, 98, 99], ()),
        (Generation(ids(1), 3), [97, 98, 99], (99,)),
        (Generation(ids(1), 3), [97, 98], ()),
        (Generation(ids(1), 3, stop), [97, 98], ()),
        (Generation(ids(1), 3, stop, keep_stop=True), [97, 98, 10], ()),
        (Generation(ids(1), 3, stop), [97, 98, 99], ()),
    ]
    assert [each.finish(tokens, table, ends) for each, tokens, ends in ended] == [
        LENGTH,
        EOS,
        EOS,
        STOP,
        STOP,
        LENGTH,
    ]


def test_a_limit_of_its_own_for_the_thought_is_another_question() -> None:
    one = Generation(ids(1), 8)
    two = Generation(ids(1), 8, thought=5, closing=ids(2, 3))
    keys = {
        each.key
        for each in (one, two, Generation(ids(1), 8, thought=6), Generation(ids(1), 8, thought=5))
    }
    assert len(keys) == 4
    assert Generation(ids(1), 8, opened="<think>", marks={3: b"[THINK]"}).key == one.key
    assert (one.most, two.most, two.inputs) == (8, 15, 15)


@pytest.mark.parametrize(
    ("pieces", "opened", "expected"),
    [
        (
            "<think>|\n|a|b|\n|</think>|\n\n|B",
            "",
            (1, 4, {2}),
        ),  # the last line break belongs to the closing
        ("a|b|\n|</think>|\n\n|B", "<think>", (0, 2, set())),
        (
            "a|b\n|c|\n</think>|B",
            "<think>",
            (0, 3, {2}),
        ),  # a token reaches over the tag: what is before it alone
        ("a|\n|\n|</think>|B", "<think>", (0, 2, set())),
        (
            "a|b\n|</think>|B",
            "<think>",
            (0, 2, {2}),
        ),  # no token of its own: the closing is written without it
        ("a|</think>|B", "", (0, 1, set())),  # a prompt that nobody saw opened it
        ("<|th|ink|>a|b|</th|ink>|B", "", (4, 5, set())),
        ("<think>|<think>|a|</think>|B", "", (1, 3, set())),  # opened twice
        ("<think>|a|</think>|B", "<think>", (0, 2, set())),
        ("<think>|a|</think>|x|<think>|c|</think>|b", "", (1, 2, set())),  # the first of two
        ("<think>|a|</think>|x\n|<think>|c", "", (1, 2, set())),
        ("<think>|a", "", None),
        ("a|b", "<think>", None),
        ("<think>|\n|\n|</think>|\n\n|B", "", None),
        ("</think>|B", "<think>", None),
        ("B", "", None),
        (f"hm|{FINAL}|B", ANALYSIS, None),  # no template shows how to close one
    ],
)
def test_where_a_thought_can_be_cut(
    pieces: str, opened: str, expected: tuple[int, int, set[int]] | None
) -> None:
    found = cuttable([piece.encode() for piece in pieces.split("|")], opened, b"\n</think>\n\n")
    assert found == (None if expected is None else Cuttable(*expected[:2], frozenset(expected[2])))


def test_a_line_break_at_the_limit_of_a_thought_is_not_written_twice() -> None:
    pieces = [piece.encode() for piece in ["a", "\n", "\n", "</think>", "\n\n", "B"]]
    assert cuttable(pieces, "<think>", b"\n</think>\n\n", forced=True) == Cuttable(
        0, 2, frozenset({2})
    )
    assert cuttable(pieces, "<think>", b"\n</think>\n\n", forced=False) == Cuttable(
        0, 2, frozenset()
    )


@given(
    thought=PLAIN,
    said=PLAIN,
    opened=st.booleans(),
    sizes=st.lists(st.integers(1, 5), min_size=90, max_size=90),
)
def test_a_thought_that_is_cut_holds_no_tag_and_nothing_else(
    thought: str, said: str, opened: bool, sizes: list[int]
) -> None:
    text, pieces = (
        ("" if opened else "<think>").encode() + f"{thought}</think>{said}".encode(),
        list[bytes](),
    )
    while text:
        pieces.append(text[: sizes[len(pieces) % 90]])
        text = text[len(pieces[-1]) :]
    found = cuttable(pieces, "<think>" if opened else "", b"\n</think>\n\n")
    assert (found is None) == (not thought.encode().strip())
    if found is not None:
        inside = b"".join(pieces[found.start : found.end])
        assert inside in thought.encode()
        assert all(b"".join(pieces[:place]).endswith(b"\n") for place in found.broken)
