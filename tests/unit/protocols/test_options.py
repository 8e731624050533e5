"""Changes of the list of options: "I don't know" behind them, and "none of the others" in place of one of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset
from choicewise.data.decisions import DESCRIPTIONS
from choicewise.data.items import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.catalogue import entries, resolve
from choicewise.protocols.preparations import (
    AFTER,
    DONT_KNOW,
    NAMES,
    NONE,
    OPTIONS,
    PREPARATIONS,
    change_of,
    changed_options,
    fields_shown,
    prepare,
    refers_to_others,
)
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.requests.render import Refusal, TemplateSource
from tests.helpers.protocols import mmlu_protocol, requests

ITEM = Item("q7", "Which?", ("red", "tall", "salty", "first"), (2,), "s")
CONTROL = "none-of-the-others-control"


def dataset(*items: Item, dev: int = 2) -> Dataset:
    pool = [replace(ITEM, id=f"dev {place}", question=f"Which {place}?") for place in range(dev)]
    return Dataset("quiz", {"test": items or (ITEM,), "dev": pool})


def texts(protocol: Protocol, item: Item = ITEM) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    (request,) = requests(protocol, dataset(item), item.subject)
    return request.text(), request.options, request.gold


@given(st.lists(st.text(), min_size=2, max_size=8), st.data())
def test_dont_know_is_one_more_option_and_never_right(
    choices: list[str], data: st.DataObject
) -> None:
    gold = data.draw(st.sets(st.integers(0, len(choices) - 1), min_size=1))
    item = Item("1", "?", tuple(choices), tuple(sorted(gold)))
    changed = prepare("dont-know", item)
    assert changed == replace(item, choices=(*choices, DONT_KNOW))
    assert prepare("dont-know", item, shot=True) == changed, (
        "an example shows the list that is asked about"
    )


@given(st.text(min_size=1), st.integers(2, 6), st.data())
def test_none_stands_in_one_place_and_the_rest_stays(
    id: str, size: int, data: st.DataObject
) -> None:
    item = Item(
        id,
        "?",
        tuple(f"text {place}" for place in range(size)),
        (data.draw(st.integers(0, size - 1)),),
    )
    for name, places in {
        "none-of-the-others": {*item.gold},
        CONTROL: {*range(size)} - {*item.gold},
    }.items():
        changed = prepare(name, item)
        (place,) = (place for place, text in enumerate(changed.choices) if text == NONE)
        assert place in places
        assert replace(changed, choices=item.choices) == item
        assert changed.choices == (*item.choices[:place], NONE, *item.choices[place + 1 :])
        assert prepare(name, item, shot=True) == item, (
            "what is shown as right would be known by its text"
        )
        assert prepare(name, replace(item, question="another")).choices == changed.choices, (
            "by the hash of the id"
        )


def test_the_control_takes_every_wrong_option_about_as_often() -> None:
    places = [
        prepare(CONTROL, replace(ITEM, id=f"q{number}")).choices.index(NONE)
        for number in range(600)
    ]
    counts = [places.count(place) for place in range(4)]
    assert counts[2] == 0
    assert all(160 < count < 240 for count in (counts[0], counts[1], counts[3]))
    assert places[:6] == [0, 3, 1, 3, 0, 0], "the same on every machine"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "None of the above",
            "all of the above.",
            "ALL OF THE ABOVE",
            " None of these ",
            "Neither of these.",
        ),
        *(
            "None of the other answers",
            "All of them",
            "none of above",
            "all the above",
            "Both of the above",
        ),
        *(
            "All of the options given are correct",
            "None of these choices is correct.",
            "None of the others",
        ),
        *(
            "All options given are correct",
            "None of the above, as the aim is another",
            "Any of the above.",
        ),
        *("D. None of the above", "(d) all of these", "None of these will increase the half life"),
        "All of the statements above",
    ],
)
def test_an_option_that_refers_to_the_others_is_known(text: str) -> None:
    assert refers_to_others(text)
    with pytest.raises(
        DataError,
        match="item q7 has an option .*none of the above",
    ):
        prepare("none-of-the-others", replace(ITEM, choices=("red", "tall", "salty", text)))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Both A and B",
            "Neither A nor B.",
            "None",
            "Both",
            "All",
            "None of the planets have rings",
        ),
        *(
            "All organisms reproduce.",
            "All of these factors grow",
            "It is above the line",
            "94% or above.",
        ),
        *(
            "Any two of A, B and C",
            "None of the offspring will be affected",
            "All the king's men",
            "It is warmer than",
        ),
        *("Both 2 and 3", "No-one is above the law.", "All three", ""),
    ],
)
def test_other_options_are_not(text: str) -> None:
    assert not refers_to_others(text)


def test_what_the_data_says_of_an_option_goes_with_it() -> None:
    """An option that is put in its place, or added, is described by nothing."""
    told = replace(ITEM, fields={DESCRIPTIONS: json.dumps(["w", None, "y", "z"])})
    right = told.gold[0]
    for name in ("none-of-the-others", CONTROL, "dont-know"):
        changed = prepare(name, told)
        shown = dict(zip(changed.choices, json.loads(changed.fields[DESCRIPTIONS]), strict=True))
        for choice, text in zip(told.choices, ["w", None, "y", "z"], strict=True):
            assert shown.get(choice, text) == text
        assert [shown[choice] for choice in changed.choices if choice not in told.choices] == [None]
        assert (told.choices[right] in shown) == (name != "none-of-the-others")


def test_items_that_a_change_does_not_fit_are_refused_and_counted() -> None:
    several, alone = (
        replace(ITEM, id="several", gold=(0, 2)),
        replace(ITEM, id="alone", choices=("red",), gold=(0,)),
    )
    for name in ("none-of-the-others", CONTROL):
        with pytest.raises(DataError, match="item several has 2 right and 2 wrong options"):
            prepare(name, several)
        with pytest.raises(DataError, match="item alone has 1 right and 0 wrong options"):
            prepare(name, alone)
    with pytest.raises(DataError, match="alone has no options"):
        prepare("dont-know", alone)
    assert prepare("dont-know", several).gold == (0, 2)
    above = replace(ITEM, id="above", choices=("red", "tall", "salty", "All of these"))
    source = TemplateSource(
        mmlu_protocol(prepare="none-of-the-others", shots=0), dataset(several, ITEM, above)
    )
    given = list(source.requests("s", (several, ITEM, above)))
    assert [isinstance(each, Refusal) for each in given] == [True, False, True]
    told = list(source.problems("s", (several, ITEM, above)))
    assert [name for name, _ in told] == ["several", "above"]


def test_a_letter_is_added_where_there_is_none_for_the_new_option() -> None:
    text, options, gold = texts(mmlu_protocol(prepare="dont-know", shots=2))
    assert options == (*ITEM.choices, DONT_KNOW)
    assert gold == (2,)
    assert text.count(f"E. {DONT_KNOW}\n") == 3, "of two examples and the question"
    (request,) = requests(mmlu_protocol(prepare="dont-know", shots=0), dataset(), "s")
    assert request.continuations == (" A", " B", " C", " D", " E")
    for letters, labels in {
        "ABCD": "ABCDE",
        "1234": "12345",
        "ABCDEFGH": "ABCDEFGHI",
        "WXYZ": "WXYZ",
    }.items():
        assert mmlu_protocol(prepare="dont-know", letters=letters).labels == labels
        assert mmlu_protocol(letters=letters).labels == letters
    with pytest.raises(DataError, match="has 4 choices, the protocol has 4 letters"):
        texts(mmlu_protocol(prepare="dont-know", letters="WXYZ", shots=0))
    with pytest.raises(DataError, match="has 4 choices, and views full .* at most 4"):
        texts(mmlu_protocol(prepare="dont-know", views="full", shots=0))


def test_only_the_asked_question_has_none() -> None:
    for name, place in {"none-of-the-others": 2, CONTROL: 0}.items():
        text, options, gold = texts(mmlu_protocol(prepare=name, shots=2))
        assert (options[place], gold) == (NONE, (2,))
        assert text.count(NONE) == 1


def test_every_value_of_the_axis_is_read_back() -> None:
    assert len(NAMES) == len({*NAMES}) == len(PREPARATIONS) * len(AFTER) + 1
    for name in NAMES:
        protocol = mmlu_protocol(prepare=name)
        assert parse_signature(signature(protocol)) == protocol
        assert (change_of(name) == "dont-know") == name.endswith("dont-know")
        assert fields_shown(name) == fields_shown(name.partition("+")[0])
    assert fields_shown("copa+dont-know") == ("asks_for",)
    with pytest.raises(ProtocolError, match="prepare is 'dont-knows'; .* none, dont-know, none-of"):
        mmlu_protocol(prepare="dont-knows")


def test_a_change_of_an_entry_keeps_what_its_source_does() -> None:
    """``@prepare=dont-know`` of every entry with a list of options, whatever its own preparation is."""
    for entry in entries():
        name, protocol = next(iter(entry.protocols.items()))
        if protocol.choices == 1 or protocol.requests is not None:
            continue
        for change in OPTIONS:
            (changed,) = resolve(f"{name}@prepare={change}").values()
            own = protocol.prepare
            assert (
                changed.prepare
                == changed_options(own, change)
                == (change if own == "none" else f"{own}+{change}")
            )
            assert replace(changed, prepare=own) == protocol
    twice = resolve("copa/harness@prepare=dont-know,prepare=dont-know")
    assert {each.prepare for each in twice.values()} == {"copa+dont-know"}
    copa = Item("1", "It rained.", ("We ran.", "The sun shone."), (0,), "", {"asks_for": "effect"})
    assert prepare("copa+dont-know", copa).choices == ("we ran.", "the sun shone.", DONT_KNOW)
    assert prepare("copa+none-of-the-others", copa).choices == (NONE, "the sun shone.")
