"""What a protocol refuses to be, its templates, and its spelling, which is its identity: every axis shows in it."""

import re
from copy import copy
from dataclasses import Field, FrozenInstanceError, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ChoicewiseError, DataError, ProtocolError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.metrics import ABSTAINING, METRICS
from choicewise.protocols.preparations import moves_labels
from choicewise.protocols.protocol import (
    AXES,
    CORRECTED,
    LABELLED,
    AskingAxes,
    PromptAxes,
    Protocol,
    ReadingAxes,
    ScoringAxes,
    ShotAxes,
    axis_differences,
    fill,
    holes,
    parse_signature,
    short_signature,
    signature,
    stop_texts,
)
from choicewise.protocols.readings import CALIBRATIONS, CONDITIONAL, EXTRACTIONS, READINGS
from tests.helpers.messages import Gist
from tests.helpers.protocols import mmlu_protocol, requests
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"score": "mean"}, "score is 'mean'; ... sum, token_mean"),
        ({"shots": "5"}, "shots is '5'; it must be int"),
        ({"shots": True}, "shots is True; it must be int"),
        ({"limit": 1.5}, "limit is 1.5; ... int or None"),
        ({"shots": -1}, "shots is -1; it can't be negative"),
        ({"header": "\ud800"}, "header has half"),
        ({"score": "pmi"}, "score pmi needs ... null"),
        ({"null": ""}, "use score pmi ... domain_conditional"),
        ({"reading": "generate"}, "decision argmax does not"),
        ({"decision": "letter-match"}, "letter-match; use argmax"),
        ({"decision": "greedy-match"}, "greedy-match needs score greedy, not sum"),
        (
            {"reading": "generate", "decision": "letter-match"},
            "letter-match ... score sum",
        ),
        (
            {"reading": "generate", "decision": "option-match", "score": "none"},
            "option-match ... score none",
        ),
        ({"reading": "generate", "decision": "option-match"}, "needs new_tokens"),
        ({"score": "none"}, "reading loglikelihood ... no score none"),
        (
            {"reading": "masked", "score": "greedy"},
            "reading masked ... no score greedy; ... sum, token_mean",
        ),
        ({"reading": "embedding"}, "reading embedding ... no score sum; ... none"),
        (
            {"reading": "noisy-channel"},
            "noisy-channel needs ... proposal",
        ),
        (
            {"reading": "noisy-channel", "proposal": "{choice}"},
            "takes no shots; use shots 0",
        ),
        (
            {"reading": "surprisal", "outside": "top100=-100"},
            "axis outside is top100=-100",
        ),
        (
            {"reading": "yes-no", "proposal": "{choice}?"},
            "takes 2 to 2 different",
        ),
        (
            {"reading": "rating", "proposal": "{choice}?", "continuation": "1\n1"},
            "2 to 20 different continuations",
        ),
        (
            {"views": "cyclic", "calibration": "contextual"},
            "contextual needs views content-free, not cyclic",
        ),
        (
            {"calibration": "permutation"},
            "permutation ... views cyclic or full, not given",
        ),
        (
            {"views": "cyclic", "continuation": "{choice}"},
            "{letter} without {choice}",
        ),
        (
            {"calibration": "batch", "score": "token_mean"},
            "Use reading loglikelihood, score sum",
        ),
        (
            {"views": "cyclic", "question": "{question}"},
            "question has no {options}",
        ),
        (
            {"views": "full", "choices": 5, "letters": "ABCDE"},
            "at most 4 choices, not 5; use views cyclic",
        ),
        ({"shot_split": None}, "5 shots need a shot_split"),
        ({"sampler": "none"}, "5 shots need a shot_split"),
        ({"sampler": "helm"}, "sampler helm"),
        ({"sampler": "harness-v0"}, "sampler harness-v0"),
        ({"choices": 5}, "5 letters; letters is 'ABCD'"),
    ],
)
def test_protocol_refuses_what_means_nothing(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        mmlu_protocol(**axes)
    assert str(raised.value) == Gist(message)


def test_protocol_is_a_value_and_those_that_differ_in_scoring_alone_share_their_prompts() -> None:
    assert mmlu_protocol(shots=3) == mmlu_protocol(shots=3)
    assert len({mmlu_protocol(), mmlu_protocol(), mmlu_protocol(shots=3)}) == 2
    with pytest.raises(FrozenInstanceError):
        mmlu_protocol().shots = 3  # type: ignore[misc]
    asked = mmlu_protocol(continuation=" {choice}")
    scored = replace(
        asked, score="pmi", null="", ties="split", aggregation="macro", benchmark="other"
    )
    assert asked.prompt_digest == scored.prompt_digest
    assert asked.digest != scored.digest


HOLES = st.fixed_dictionaries(
    {"question": st.text(), "choice": st.sampled_from(["{question}", "{{", "}", "\\1", ""])}
)
PIECES = st.lists(
    st.sampled_from(["{question}", "{choice}", "{{", "}}", "Answer:", "\n", " "]) | st.text("ab:!")
)


@given(PIECES, HOLES)
def test_fill_agrees_with_str_format(pieces: list[str], holes: dict[str, str]) -> None:
    template = "".join(pieces)
    assert fill(template, holes) == template.format(**holes)


def test_fill_never_reads_filled_text_again() -> None:
    assert fill("{a}{b}", {"a": "{b}", "b": "{a}"}) == "{b}{a}"
    assert fill("{{a}} {a}", {"a": "{{x}}"}) == "{a} {{x}}"


def test_fill_names_the_axis_of_holes_that_nothing_fills_and_of_lone_braces() -> None:
    for hole in (
        "{quest}",
        "{question!r}",
        "{question:>9}",
        "{question.upper}",
        "{}",
        "{ question}",
    ):
        with pytest.raises(ProtocolError) as raised:
            fill(hole, {"question": "?", "letter": "A"}, axis="option")
        assert str(raised.value) == Gist(f"axis option ... {hole} ... {{question}}, {{letter}}")
    for template, brace in {"{": "{", "a}": "}", "{{{": "{", "{a{b}}": "{"}.items():
        with pytest.raises(ProtocolError, match=f"axis header .* '{brace}'; .*'{brace * 2}'"):
            fill(template, {"b": ""}, axis="header")


ODD = [
    "-",
    "%",
    "|",
    ":",
    "\n",
    "%0A",
    "- ",
    "\u2028",
    "\x85",
    "é|%",
    "{choice}",
    "%2D",
    "+",
    "\U0010ffff",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(ODD)
DECLARED = fields(Protocol)


def values(axis: Field[Any]) -> st.SearchStrategy[Any]:
    """Anything that one axis can hold, read off its declaration."""
    kinds = {"str": TEXT, "int": st.integers(0, 3000), "None": st.none()}
    if axis.metadata["allowed"]:
        return st.sampled_from(axis.metadata["allowed"])
    return st.one_of(*(kinds[part] for part in str(axis.type).split(" | ")))


@st.composite
def protocols(draw: st.DrawFn) -> Protocol:
    """Any protocol whatever; the few axes that only go together are made to."""
    axes = {axis.name: draw(values(axis)) for axis in DECLARED}
    if axes["views"] not in CALIBRATIONS[axes["calibration"]]:
        axes["views"], axes["calibration"] = "given", "none"
    plain = (axes["views"], axes["calibration"]) == ("given", "none")
    free = plain and not READINGS[axes["reading"]].unordered  # whose templates are not free
    axes["reading"] = axes["reading"] if free else "loglikelihood"
    reading = READINGS[axes["reading"]]
    if moves_labels(axes["prepare"]) and not reading.by_choice:
        axes["prepare"] = "none"
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
    if axes["boundary"] in LABELLED and "\n" in axes["continuation"] and not reading.several:
        axes["continuation"] = "{letter}"
    if axes["boundary"] == "bytes":
        axes["outside"], axes["score"] = (
            "keep",
            "sum" if axes["score"] == "greedy" else axes["score"],
        )
    if not plain:
        axes |= {
            "question": "{options}",
            "continuation": "{letter}",
            "score": "sum",
            "null": None,
            "outside": "keep",
        }
        axes |= {"decision": "argmax", "choices": axes["choices"] and min(axes["choices"], 4)}
    if reading.proposal:
        axes["proposal"] = axes["proposal"] or "{choice}"
    if "shots" not in reading.takes or reading.proposal:
        axes["shots"] = 0
    if reading.several:
        axes["continuation"] = "\n".join(
            f" {number}" for number in range(draw(st.integers(*reading.lines)))
        )
    axes["new_tokens"] = (axes["new_tokens"] or 1) if "new_tokens" in reading.takes else None
    if axes["reading"] == "chain-of-thought":
        axes["fit"], axes["proposal"] = "refuse", axes["proposal"].replace("{choice}", "") or "\n"
        axes["chains"], axes["separator"] = axes["chains"] or 1, axes["separator"] or "\n\n"
    else:
        axes["chains"] = None
    axes["seed"] = axes["seed"] or 0
    axes["chat"] = axes["chat"] if "shots" in reading.takes else "none"
    if reading.along:
        axes["chat"], axes["thought"] = "message", "keep"
        axes["proposal"] = re.sub(r"\{(letter|choice)\}", "", axes["proposal"])
    axes["system"] = axes["system"] if axes["chat"] != "none" else None
    told, thinks = ["enable_thinking=false", "effort=low\nturns=3", None], axes["chat"] != "none"
    axes["template"] = draw(st.sampled_from(told)) if thinks else None
    axes["thought"] = axes["thought"] if thinks else "keep"
    limited = (
        thinks
        and "thought_tokens" in reading.takes
        and axes["thought"] == "keep"
        and axes["thought_tokens"]
    )
    axes["thought_tokens"] = axes["thought_tokens"] if limited else None
    axes["cut"] = axes["cut"] if reading.text else "read"
    generates, stops = "new_tokens" in reading.takes, stop_texts(axes["stop"])
    axes["stop"] = axes["stop"] if generates and all(stops) else None
    axes["choices"] = (
        min(axes["choices"], len(axes["letters"])) if axes["choices"] else axes["choices"]
    )
    metric = METRICS[axes["metric"]]
    likelihoods = (
        reading.one_likelihood and axes["calibration"] == "none" and axes["outside"] == "keep"
    )
    scored = not metric.scores or axes["score"] in metric.scores
    odd = (
        axes["metric"] in ABSTAINING
        or metric.orders
        or metric.likelihood > likelihoods
        or not scored
    )
    if not metric.predicted and (axes["decision"] != "argmax" or odd):
        axes["metric"] = "acc"
    metric = METRICS[axes["metric"]]
    if not metric.probable or (axes["golds"] == "each" and axes["metric"] != "brier"):
        axes["golds"] = "sum"
    axes["temperature"] = draw(st.sampled_from(["1", "0.5", "2.25"])) if metric.softmax else "1"
    if (axes["metric"] != "bpb" and axes["aggregation"] == "bytes") or metric.pooled:
        axes["aggregation"] = "micro"
    axes["choices"] = 1 if axes["metric"] == "perplexity" else axes["choices"]
    axes["letters"] = axes["letters"] or "A" if axes["choices"] == 1 else axes["letters"]
    axes["described"] = axes["described"] if "options" in holes(axes["question"]) else None
    axes["requests"] = None  # beside it no template means anything
    if axes["sampler"] == "none" or axes["shot_split"] is None:
        axes["shots"] = 0
    return mmlu_protocol(**axes)


@given(protocols())
def test_signature_parses_back_to_an_equal_protocol(protocol: Protocol) -> None:
    spelled = signature(protocol)
    assert parse_signature(spelled) == protocol
    assert spelled.isprintable()
    assert [part.partition(":")[0] for part in spelled.split("|")] == [
        axis.name for axis in DECLARED
    ]


@pytest.mark.costly("half a second where the first of its file pays for imports")
@settings(max_examples=20)
@given(data=st.data(), protocol=protocols())
def test_every_axis_shows_in_signature_and_digest(data: st.DataObject, protocol: Protocol) -> None:
    unread = copy(protocol)  # without the digests, which a protocol remembers
    for axis in DECLARED:
        value, changed = data.draw(values(axis)), copy(unread)
        if value == getattr(protocol, axis.name):
            continue
        object.__setattr__(
            changed, axis.name, value
        )  # some can't change alone; their spelling must all the same
        assert signature(changed) != signature(protocol)
        assert changed.digest != protocol.digest
        assert (changed.prompt_digest != protocol.prompt_digest) == (
            axis.metadata["stage"] == "request"
        )
        assert [name for name, _, _ in axis_differences(protocol, changed)] == [axis.name]


def test_signature_of_the_default_protocol(snapshot: SnapshotAssertion) -> None:
    """Whoever changes a default, an axis or a spelling changes every published signature."""
    assert signature(mmlu_protocol()) == snapshot


def test_axes_that_came_later_change_neither_signatures_nor_ids_of_before() -> None:
    protocol = mmlu_protocol()
    spelled = signature(protocol)
    thinking = (
        "|template:-|thought:keep",
        "|thought_tokens:-",
        "|cut:read",
        "|kind:any",
        "|described:-",
    )
    for later in (
        "|prepare:none",
        "|chat:none|system:-",
        "|stop:-",
        "|golds:sum|temperature:1",
        *thinking,
    ):
        assert later in spelled
        spelled = spelled.replace(later, "")
    assert parse_signature(spelled) == protocol
    assert short_signature(protocol) == f"#P{protocol.digest[:6]}"
    assert protocol.digest == "d4aec07f03c668825bc276dba4cf064007905d990e0e3ac66bf9dcaafd2acbd1"


def test_axis_differences_gives_both_spellings_in_axis_order() -> None:
    left, right = mmlu_protocol(), mmlu_protocol(score="pmi", null="Answer:\n", header="a|b")
    found = [("header", "", "a%7Cb"), ("score", "sum", "pmi"), ("null", "-", "Answer:%0A")]
    assert (axis_differences(left, right), axis_differences(right, right)) == (found, [])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("|ties:first", "|tie:first", "'tie:first' ... ties?"),
        ("|ties:first", "|ties", "part 'ties' ... AXIS:VALUE"),
        ("|ties:first", "", "leaves out ties"),
        ("|ties:first", "|ties:first|ties:first", "has axis ties twice"),
        ("|shots:5", "|shots:five", "axis shots is 'five'; ... whole number"),
        ("|shots:5", "|shots:-", "axis shots is '-'; ... whole number"),
        ("|shots:5", "|shots:-5", "axis shots is '-5'; ... whole number"),
        ("|shots:5", "|shots:²", "axis shots is '²'; ... whole number"),
        ("|header:", "|header:%FF", "axis header ... UTF-8: '%FF'"),
        ("|ties:first", "|ties:last", "axis ties is 'last'; ... first, split"),
        ("|score:sum", "|score:pmi", "score pmi needs ... null"),
    ],
)
def test_parse_signature_says_what_is_wrong(old: str, new: str, message: str) -> None:
    spelled = signature(mmlu_protocol()).replace(old, new)
    with pytest.raises(ProtocolError) as raised:
        parse_signature(spelled)
    assert str(raised.value) == Gist(message)


def test_the_design_note_lists_every_axis_in_order() -> None:
    note = (ROOT / "docs/design/signature.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")[:2]
        for line in note.splitlines()
        if line.startswith("| ") and "axis |" not in line
    ]
    assert rows == [[f"| {axis.name}", axis.metadata["stage"]] for axis in DECLARED]


WRONG = {
    "shotz = 3": "unknown key 'shotz'; did you mean shots?",
    'seed = "a"': "axis seed is 'a'; ... int or None",
    "header = 1": "protocol axis header is 1; it must be str",
    'score = "summ"': "axis score is 'summ'; ... sum, ",
    'ties = "frist"': "axis ties is 'frist'; ... first, ",
    "choices = -1": "protocol axis choices is -1; it can't be negative",
    "limit = true": "axis limit is True; ... int or None",
}
TOP = {
    'colour = "red"': "unknown key 'colour'; available: name, about, base, protocol",
    "about = 1": 'about is 1; write it in quotes, about = "..."',
    'base = "mmlu/orginal"': "base 'mmlu/orginal' ... mmlu/original or",
}


def refused(path: Path, text: str) -> ProtocolError:
    path.write_text(text)
    with pytest.raises(ProtocolError) as raised:
        resolve(str(path))
    return raised.value


@given(st.sets(st.sampled_from(sorted(WRONG)), min_size=1), st.sets(st.sampled_from(sorted(TOP))))
def test_all_that_is_wrong_is_listed(
    tmp_path_factory: pytest.TempPathFactory, axes: set[str], top: set[str]
) -> None:
    path = tmp_path_factory.mktemp("protocol") / "mine.toml"
    base = [] if any("base" in line for line in top) else ['base = "mmlu/original"']
    error = refused(path, "\n".join([*sorted(top), *base, "[protocol]", *sorted(axes)]))
    expected = [WRONG[line] for line in axes] + [TOP[line] for line in top]
    assert len(error.parts) == len(expected)
    for message in expected:
        assert Gist(message) in [part.removeprefix(f"{path}: ") for part in error.parts]
    assert error.message.startswith(f"{path}: ")
    assert str(error) == "\n  ".join([error.message, *error.problems])


def test_axes_that_do_not_go_together_are_listed_with_the_rest_and_one_mistake_is_one_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    text = str(refused(path, '[protocol]\nreading = "generate"\nscore = "pmi"\nshotz = 1\n'))
    for part in (
        "unknown key 'shotz'",
        "no benchmark",
        "needs the axis null",
        "no score pmi",
        "needs new_tokens",
    ):
        assert part in text
    text = str(refused(path, 'base = "mmlu/original"\n[protocol]\nshotz = 1\n'))
    assert text == f"{path}: unknown key 'shotz'; did you mean shots?"


def test_a_protocol_in_python_lists_everything_and_every_axis_can_be_wrong_alone() -> None:
    with pytest.raises(ProtocolError) as raised:
        Protocol(benchmark="any", seed="a", ties="frist")  # type: ignore[arg-type]
    assert len(raised.value.problems) == 2
    for name in AXES:
        with pytest.raises(ProtocolError, match=f"protocol axis {name} is"):
            Protocol(**{"benchmark": "any", name: object()})


@given(st.text(), st.lists(st.text()))
def test_an_error_says_where_without_losing_anything(message: str, problems: list[str]) -> None:
    error = DataError(message, problems).within("here")
    assert isinstance(error, DataError)
    assert (error.message, error.problems) == (f"here: {message}", tuple(problems))
    assert error.parts == (tuple(problems) or (error.message,))
    assert ChoicewiseError.of_problems([message]).parts == (message,)


def questions(counts: list[int], subject: str = "s") -> tuple[Item, ...]:
    """An item with so many choices each."""
    choices = [tuple(f"c{choice}" for choice in range(count)) for count in counts]
    return tuple(
        Item(f"{subject}-q{n}", "Which?", own, (0,), subject) for n, own in enumerate(choices)
    )


@settings(max_examples=15)
@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=30), st.lists(st.integers(2, 6), max_size=30)
)
def test_what_is_wrong_is_counted(
    tmp_path_factory: pytest.TempPathFactory, tides: list[int], winds: list[int]
) -> None:
    rows = questions(tides, "tides") + questions(winds, "winds")
    shots = [replace(item, question="Which else?") for item in questions([4] * 5, "tides")]
    dataset = Dataset("mine", {"test": rows, "dev": shots})
    bad = [item for item in rows if len(item.choices) != 4]
    out = tmp_path_factory.mktemp("out") / "run"
    asked = {
        "model": "fake:hash",
        "data": dataset,
        "protocols": ["mmlu/original", "mmlu/harness-v1"],
        "out": out,
        "shots": "error",
    }
    if not bad and not winds:
        choicewise.evaluate(**asked)
        return
    with pytest.raises(DataError) as raised:
        choicewise.evaluate(**asked)
    parts = raised.value.parts
    counted = sum(bool(re.search(r"item .* has \d choices", part)) for part in parts)
    counted += sum(int(part.split(" ")[2]) for part in parts if part.startswith("... and"))
    assert counted == len(bad)
    assert sum("subject 'winds' has 0 rows in split 'dev'" in part for part in parts) == bool(winds)
    assert len(parts) <= 4 * 5 + 2
    assert not out.exists()


def test_the_example_of_the_page_runs_and_asks_other_data_than_mmlu(
    tmp_path: Path, shared_data: Path
) -> None:
    page = (ROOT / "docs" / "own-protocol.md").read_text(encoding="utf-8")
    text, *_ = [
        block
        for block in re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
        if "[protocol]" in block
    ]
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    (protocol,) = resolve(str(path)).values()
    names = [file.name for file in (shared_data / "hf_rows").glob("*.jsonl")]
    assert names
    for name in names:
        with (shared_data / "hf_rows" / name).open(encoding="utf-8") as lines:
            (tmp_path / name).write_text("".join(islice(lines, 20)), encoding="utf-8")
        dataset = choicewise.open_dataset(tmp_path / name, on_bad_item="skip")
        (subject, *_) = dataset.subjects(dataset.evaluated)
        request = next(requests(protocol, dataset, subject))
        assert request.context().endswith("The answer is")
        assert len(request.continuations) == len(request.item.choices)
    dataset = Dataset("mine", {"validation": questions([2, 3, 4, 5, 12])})
    run = choicewise.evaluate(
        model="fake:hash", data=dataset, protocols=[str(path)], out=tmp_path / "run"
    )
    assert run.report()["n"].to_pylist() == [5]


def test_the_groups_hold_the_axes_in_the_order_of_the_signature() -> None:
    groups = (PromptAxes, ShotAxes, AskingAxes, ReadingAxes, ScoringAxes)
    assert [len(fields(group)) for group in groups] == [17, 21, 29, 35, 47]
    for smaller, larger in zip(groups, (*groups[1:], Protocol), strict=True):
        names = [axis.name for axis in fields(smaller)]
        assert [axis.name for axis in fields(larger)][: len(names)] == names


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (PromptAxes(benchmark="b", choices=5), "5 choices need 5 letters"),
        (ShotAxes(benchmark="b", sampler="none"), "5 shots need a shot_split"),
        (AskingAxes(benchmark="b", thought="close"), "axis thought is 'close', but chat is none"),
        (ReadingAxes(benchmark="b", chains=3), "loglikelihood does not use it"),
        (ScoringAxes(benchmark="b", ties="none"), "decision argmax needs"),
    ],
)
def test_a_group_of_axes_checks_itself(group: PromptAxes, problem: str) -> None:
    (found,) = group.problems()
    assert found == Gist(problem)
