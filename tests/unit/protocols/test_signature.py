"""The spelling is the identity: every protocol has one signature, and every axis shows in it."""

from copy import copy
from dataclasses import Field, fields
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import (
    CORRECTED,
    METRICS,
    Protocol,
    axis_differences,
    parse_signature,
    short_signature,
    signature,
    stop_texts,
)
from choicewise.protocols.readings import CALIBRATIONS, CONDITIONAL, EXTRACTIONS, READINGS
from tests.helpers.protocols import mmlu_protocol
from tests.paths import ROOT

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(
        ["-", "%", "|", ":", "\n", "%0A", "- ", "\u2028", "\x85", "é|%", "{choice}", "%2D", "+", "\U0010ffff"]
    ),
)
AXES = fields(Protocol)


def values(axis: Field[Any]) -> st.SearchStrategy[Any]:
    """Anything that one axis can hold, read off its declaration."""
    kinds = {"str": TEXT, "int": st.integers(0, 3000), "None": st.none()}
    if axis.metadata["allowed"]:
        return st.sampled_from(axis.metadata["allowed"])
    return st.one_of(*(kinds[part] for part in str(axis.type).split(" | ")))


@st.composite
def protocols(draw: st.DrawFn) -> Protocol:
    """Any protocol whatever; the few axes that only go together are made to."""
    axes = {axis.name: draw(values(axis)) for axis in AXES}
    if axes["views"] not in CALIBRATIONS[axes["calibration"]]:
        axes["views"], axes["calibration"] = "given", "none"
    plain = (axes["views"], axes["calibration"]) == ("given", "none")
    axes["reading"] = axes["reading"] if plain else "loglikelihood"
    reading = READINGS[axes["reading"]]
    axes["score"] = draw(st.sampled_from(reading.scores))
    axes["null"] = draw(TEXT) if axes["score"] in CONDITIONAL else None
    rules = ["letter-match", *EXTRACTIONS] if axes["score"] == "none" else ["option-match"]
    axes["decision"] = draw(st.sampled_from(rules)) if axes["reading"] == "generate" else "argmax"
    if axes["decision"] == "argmax" and axes["ties"] == "none":
        axes["ties"] = "first"
    axes["fit"] = "refuse" if reading.fits else axes["fit"]
    axes["boundary"] = reading.boundaries[0] if reading.boundaries else axes["boundary"]
    axes["outside"] = axes["outside"] if axes["reading"] == "loglikelihood" else "keep"
    if axes["boundary"] in CORRECTED and "correction" not in reading.takes:
        axes["boundary"] = "lcp"
    if axes["boundary"] == "bytes":
        axes["outside"], axes["score"] = "keep", "sum" if axes["score"] == "greedy" else axes["score"]
    if not plain:
        axes |= {"question": "{options}", "continuation": "{letter}", "score": "sum", "null": None, "outside": "keep"}
        axes |= {"decision": "argmax", "choices": axes["choices"] and min(axes["choices"], 4)}
    if reading.proposal:
        axes["proposal"] = axes["proposal"] or "{choice}"
        axes["shots"] = 0
    if reading.several:
        axes["continuation"] = "\n".join(f" {number}" for number in range(draw(st.integers(*reading.lines))))
    axes["new_tokens"] = (axes["new_tokens"] or 1) if "new_tokens" in reading.takes else None
    if axes["reading"] == "chain-of-thought":
        axes["fit"], axes["proposal"] = "refuse", axes["proposal"].replace("{choice}", "") or "\n"
        axes["chains"], axes["separator"] = axes["chains"] or 1, axes["separator"] or "\n\n"
    else:
        axes["chains"] = None
    axes["seed"] = axes["seed"] or 0
    axes["chat"] = axes["chat"] if "shots" in reading.takes else "none"
    axes["system"] = axes["system"] if axes["chat"] != "none" else None
    generates, stops = "new_tokens" in reading.takes, stop_texts(axes["stop"])
    axes["stop"] = axes["stop"] if generates and all(stops) else None
    axes["choices"] = min(axes["choices"], len(axes["letters"])) if axes["choices"] else axes["choices"]
    metric = METRICS[axes["metric"]]
    likelihoods = reading.one_likelihood and (axes["score"], axes["calibration"]) == ("sum", "none")
    if not metric.predicted and (axes["decision"] != "argmax" or metric.likelihood > likelihoods):
        axes["metric"] = "acc"
    axes["choices"] = 1 if axes["metric"] == "perplexity" else axes["choices"]
    axes["letters"] = axes["letters"] or "A" if axes["choices"] == 1 else axes["letters"]
    axes["requests"] = None  # beside it no template means anything
    if axes["sampler"] == "none" or axes["shot_split"] is None:
        axes["shots"] = 0
    return mmlu_protocol(**axes)


@given(protocols())
def test_signature_parses_back_to_an_equal_protocol(protocol: Protocol) -> None:
    spelled = signature(protocol)
    assert parse_signature(spelled) == protocol
    assert spelled.isprintable()
    assert [part.partition(":")[0] for part in spelled.split("|")] == [axis.name for axis in AXES]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
@settings(max_examples=10)
@given(data=st.data(), protocol=protocols())
def test_every_axis_shows_in_signature_and_digest(axis: Field[Any], data: st.DataObject, protocol: Protocol) -> None:
    value = data.draw(values(axis))
    assume(value != getattr(protocol, axis.name))
    changed = copy(protocol)
    object.__setattr__(changed, axis.name, value)  # some axes can't change alone; their spelling must all the same
    assert signature(changed) != signature(protocol)
    assert changed.digest != protocol.digest
    assert (changed.prompt_digest != protocol.prompt_digest) == (axis.metadata["stage"] == "request")
    assert [name for name, _, _ in axis_differences(protocol, changed)] == [axis.name]


def test_signature_of_the_default_protocol() -> None:
    # Written out once: whoever changes a default, an axis or a spelling changes every published signature.
    assert signature(mmlu_protocol()) == (
        "benchmark:mmlu|split:test|requests:-|quirk:none|prepare:none|strip:none|header:|question:{question}%0A{options}Answer:|"
        "option:{letter}. {choice}%0A|answer: {letter}|proposal:|continuation: {letter}|separator:%0A%0A|letters:ABCD|"
        "choices:4|shots:5|shot_split:dev|sampler:first|seed:-|chat:none|system:-|fit:drop-last-shot|limit:-|bos:default|boundary:joint|"
        "reading:loglikelihood|views:given|new_tokens:-|stop:-|chains:-|score:sum|null:-|outside:keep|calibration:none|"
        "decision:argmax|ties:first|metric:acc|aggregation:micro|rev:1"
    )


def test_axes_that_came_later_change_neither_signatures_nor_ids_of_before() -> None:
    protocol = mmlu_protocol()
    spelled = signature(protocol)
    for later in ("|prepare:none", "|chat:none|system:-", "|stop:-"):
        assert later in spelled
        spelled = spelled.replace(later, "")
    assert parse_signature(spelled) == protocol
    assert protocol.digest == "d4aec07f03c668825bc276dba4cf064007905d990e0e3ac66bf9dcaafd2acbd1"


def test_short_signature_is_the_head_of_the_digest() -> None:
    assert short_signature(mmlu_protocol()) == "#P" + mmlu_protocol().digest[:6]


def test_axis_differences_gives_both_spellings_in_axis_order() -> None:
    left, right = mmlu_protocol(), mmlu_protocol(score="pmi", null="Answer:\n", header="a|b")
    assert axis_differences(left, right) == [
        ("header", "", "a%7Cb"),
        ("score", "sum", "pmi"),
        ("null", "-", "Answer:%0A"),
    ]
    assert axis_differences(right, right) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("|ties:first", "|tie:first", "'tie:first' names no axis; did you mean ties?"),
        ("|ties:first", "|ties", "part 'ties' has no colon; write AXIS:VALUE"),
        ("|ties:first", "", "leaves out ties; every axis"),
        ("|ties:first", "|ties:first|ties:first", "states axis ties twice"),
        ("|shots:5", "|shots:five", "axis shots is 'five'; it must be a whole number"),
        ("|shots:5", "|shots:-", "axis shots is '-'; it must be a whole number"),
        ("|shots:5", "|shots:-5", "axis shots is '-5'; it must be a whole number"),
        ("|shots:5", "|shots:²", "axis shots is '²'; it must be a whole number"),
        ("|header:", "|header:%FF", "axis header holds bytes that are not UTF-8: '%FF'"),
        ("|ties:first", "|ties:last", "axis ties is 'last'; it must be one of first, split"),
        ("|score:sum", "|score:pmi", "score pmi with null None"),
    ],
)
def test_parse_signature_says_what_is_wrong(old: str, new: str, message: str) -> None:
    spelled = signature(mmlu_protocol()).replace(old, new)
    with pytest.raises(ProtocolError) as caught:
        parse_signature(spelled)
    assert message in str(caught.value)


def test_the_design_note_lists_every_axis_in_order() -> None:
    note = (ROOT / "docs/design/signature.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:2] for line in note.splitlines() if line.startswith("| ") and "axis |" not in line]
    assert rows == [[f"| {axis.name}", axis.metadata["stage"]] for axis in AXES]
