"""Requests and answers of decision endpoints: every dialect, every fault of an answer, without a server."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.extensions.endpoints.decisions.answers import DecisionAnswer
from choicewise.extensions.endpoints.decisions.claims import confidences, formulas_of, label_mass
from choicewise.extensions.endpoints.decisions.dialects import DIALECTS
from choicewise.questions import TypedQuestion
from tests.helpers.decision_server import ROUTES, DecisionService
from tests.helpers.messages import Gist
from tests.helpers.served_model import JSON, as_json

STATE = '{"question": "Which gas do plants take in?", "n": 3}'
GASES = ("oxygen", "helium", "carbon dioxide")
CHOICE = TypedQuestion("choice", STATE, "Which one is right?", GASES, ('"O2"', None, None))
BARE = TypedQuestion("choice", STATE, "Which one is right?", GASES, (None, None, None))
NOUL = TypedQuestion("noul", STATE, "Is it day?", ("yes", "no"), ('"the sun is up"', None))
BARE_NOUL = TypedQuestion("noul", '"A text."', "Is it day?", ("yes", "no"), (None, None))
SCORE = TypedQuestion("score", STATE, "How good?", ("bad", "fair", "good"), (None, None, None))
SIX = TypedQuestion("score", '"A text."', "How good?", tuple("abcdef"), (None,) * 6)
TOLD = {"choice": (0.2, 0.1, 0.7), "noul": (0.8, 0.2), "score": (0.1, 0.2, 0.7)}


def exchanged(
    asked: TypedQuestion,
    told: Sequence[float],
    dialect: str = "systemone",
    *behaviours: str,
    mass: float | None = None,
) -> DecisionAnswer:
    """What is read from the answer to the request that a dialect writes."""
    service = DecisionService(lambda _: told, dialect)
    service.behaviours, service.mass = dict.fromkeys(behaviours), mass
    spoken = DIALECTS[dialect]
    assert spoken.objection(asked) is None
    assert f"/v1/{spoken.path('decider')}" == ROUTES[dialect]
    answer = service.answer("POST", ROUTES[dialect], json.loads(spoken.body(asked, "decider")))
    return spoken.read(as_json(answer), asked)


BODIES = {
    ("systemone", "choice"): (
        CHOICE,
        '{"model": "m", "state": %s, "questions": {"q": {"type": "choice", "instructions": "Which one is right?", '
        '"criteria": {"oxygen": "O2", "helium": null, "carbon dioxide": null}}}}',
    ),
    ("systemone", "noul"): (
        NOUL,
        '{"model": "m", "state": %s, "questions": {"q": {"type": "noul", "instructions": "Is it day?", '
        '"criteria": {"true": "the sun is up"}}}}',
    ),
    ("openai", "choice"): (
        CHOICE,
        '{"model": "m", "input": [{"role": "user", "content": [{"type": "input_json", "data": %s}]}], "questions": '
        '[{"type": "choice", "name": "q", "instructions": "Which one is right?", "choices": [{"value": "oxygen", '
        '"description": "O2"}, {"value": "helium"}, {"value": "carbon dioxide"}]}]}',
    ),
    ("openai", "noul"): (
        BARE_NOUL,
        '{"model": "m", "input": "A text.", "questions": [{"type": "predicate", "name": "q", "instructions": '
        '"Is it day?"}]}',
    ),
    ("sglang", "noul"): (
        NOUL,
        '{"model": "m", "input": %s, "questions": [{"id": "q", "type": "yes_no", "question": "Is it day?", '
        '"yes": "the sun is up"}]}',
    ),
    ("sglang", "score"): (
        SCORE,
        '{"model": "m", "input": %s, "questions": [{"id": "q", "type": "score", "question": "How good?", "levels": '
        '["bad", "fair", "good"]}]}',
    ),
    ("google", "noul"): (
        NOUL,
        '{"model": "models/m", "input": "{\\"question\\": \\"Which gas do plants take in?\\", \\"n\\": 3}", '
        '"questions": '
        '{"q": {"type": "noul", "instructions": "Is it day?", "criteria": {"true_description": "the sun is up"}}}}',
    ),
    ("google", "choice"): (
        BARE,
        '{"model": "models/m", "input": "{\\"question\\": \\"Which gas do plants take in?\\", \\"n\\": 3}", '
        '"questions": '
        '{"q": {"type": "choice", "instructions": "Which one is right?", "criteria": {"oxygen": "", "helium": "", '
        '"carbon dioxide": ""}}}}',
    ),
    ("cloudflare", "score"): (
        SCORE,
        '{"model": "m", "state": %s, "questions": {"q": {"type": "score", "instructions": "How good?", "criteria": '
        '["bad", "fair", "good"]}}}',
    ),
    ("autotrust", "choice"): (
        CHOICE,
        '{"kind": "choice", "state": %s, "question": "Which one is right?", "thinking": "off", "options": ["O2", '
        '"helium", "carbon dioxide"]}',
    ),
    ("autotrust", "score"): (
        SIX,
        '{"kind": "score", "state": "A text.", "question": "How good?\\nLevels:\\n0: a\\n1: b\\n2: c\\n3: d\\n4: e'
        '\\n5: f", "thinking": "off"}',
    ),
}


@pytest.mark.parametrize(("dialect", "case"), BODIES)
def test_a_request_is_these_bytes(dialect: str, case: str) -> None:
    asked, body = BODIES[dialect, case]
    assert DIALECTS[dialect].body(asked, "m").decode() == body.replace("%s", STATE)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_questions_beside_are_sent_after_it_and_their_answers_are_not_read(dialect: str) -> None:
    asked, spoken = BARE, DIALECTS[dialect]
    batch = changed(asked, beside=(BARE_NOUL, SCORE))
    if dialect == "autotrust":
        assert "one question per request" in str(spoken.objection(batch))
        return
    assert spoken.objection(batch) is None
    alone, whole = (
        json.loads(spoken.body(each, "decider"))["questions"] for each in (asked, batch)
    )
    for place, other in enumerate((BARE_NOUL, SCORE), start=2):
        single = json.dumps(json.loads(spoken.body(other, "decider"))["questions"]).replace(
            '"q"', f'"q{place}"'
        )
        alone = (
            [*alone, *json.loads(single)]
            if isinstance(alone, list)
            else {**alone, **json.loads(single)}
        )
    assert json.dumps(whole) == json.dumps(alone)
    service = DecisionService(lambda _: TOLD["choice"], dialect)
    answer = service.answer("POST", ROUTES[dialect], json.loads(spoken.body(asked, "decider")))
    inner = answer["result"] if dialect == "cloudflare" else answer
    others = [{"type": "noul", "noul": 0.1}, {"type": "score"}]
    if isinstance(inner["answers"], list):
        inner["answers"] += [
            {**each, "name": f"q{place}"} for place, each in enumerate(others, start=2)
        ]
    else:
        inner["answers"] |= {f"q{place}": each for place, each in enumerate(others, start=2)}
    read = spoken.read(as_json(answer), batch)
    assert read.probabilities == pytest.approx(TOLD["choice"])
    assert not any("nobody asked" in note for note in read.notes)


def test_a_state_is_sent_as_it_is_spelled() -> None:
    """1e3 is not 1000.0, and the order of keys is a part of the question."""
    odd = '{"z": 1e3, "a": 12345678901234567890.0, "é": "\\u0000"}'
    for name in ("systemone", "sglang", "cloudflare", "autotrust", "openai"):
        assert odd.encode() in DIALECTS[name].body(
            TypedQuestion("choice", odd, "?", GASES, (None,) * 3), "m"
        ), name


@given(
    data=st.data(),
    dialect=st.sampled_from([*DIALECTS]),
    kind=st.sampled_from(["choice", "noul", "score"]),
)
@settings(max_examples=60, deadline=None)
def test_what_a_server_that_behaves_sends_is_read_as_it_is(
    data: st.DataObject, dialect: str, kind: str
) -> None:
    count = (
        2
        if kind == "noul"
        else 6
        if dialect == "autotrust"
        else data.draw(st.integers(2, 10), "options")
    )
    names = (
        ("yes", "no")
        if kind == "noul"
        else tuple(
            data.draw(
                st.lists(
                    st.text("aé字b.", min_size=1, max_size=4),
                    min_size=count,
                    max_size=count,
                    unique=True,
                ),
                "names",
            )
        )
    )
    weights = data.draw(
        st.lists(st.integers(0, 1000), min_size=count, max_size=count).filter(any), "weights"
    )
    told = [weight / sum(weights) for weight in weights]
    if kind == "noul":
        told[1] = 1 - told[0]
    mass = data.draw(st.sampled_from([None, 0.5]), "mass")
    answer = exchanged(
        TypedQuestion(kind, STATE, "Which?", names, (None,) * count), told, dialect, mass=mass
    )
    assert (answer.probabilities, answer.missing, answer.retry) == (tuple(told), None, False)
    assert not answer.contradictions or {"tie"} == {
        each.partition(":")[0] for each in answer.contradictions
    }
    assert answer.model == ("decider" if dialect != "google" else None)
    assert answer.usage["input_tokens"] == len(f"{STATE}Which?") // 4 or dialect in (
        "google",
        "autotrust",
    )
    assert answer.recomputed == confidences(kind, told)["typesafe"]
    assert label_mass(answer.diagnostics) == (
        0.75 if dialect == "sglang" and mass is None else mass if dialect not in _SILENT else None
    )


_SILENT = {"openai", "autotrust"}

MISSING = {
    ("NaN", "choice"): Gist("'oxygen' is NaN"),
    ("null", "choice"): Gist("'oxygen' is null"),
    ("null", "noul"): Gist("'yes' is null"),
    ("negative", "choice"): "probability of 'oxygen' is -0.25",
    ("above 1", "noul"): "probability of 'yes' is 1.5",
    ("text for a number", "choice"): Gist("'oxygen' is the text \"0.2\""),
    ("text for a number", "noul"): Gist("'yes' is the text \"0.8\""),
    ("sum of a half", "choice"): "the probabilities sum to 0.5",
    ("all zero", "score"): "the probabilities sum to 0",
    ("option missing", "choice"): Gist("no probability for 'oxygen'"),
    ("option extra", "choice"): Gist("'none of them', not among"),
    (
        "option renamed",
        "choice",
    ): Gist("no probability for 'oxygen', ... 'oxygen?', not among"),
    (
        "case changed",
        "choice",
    ): Gist(
        "no probability for 'oxygen', 'helium' and 'carbon dioxide', ... 'OXYGEN', 'HELIUM' and 'CARBON DIOXIDE'"
    ),
    (
        "legend of other texts",
        "score",
    ): 'the answer calls level 0 the text "something else", unlike the question',
    (
        "probabilities as list",
        "choice",
    ): Gist("[0.2, 0.1, 0.7]; ... systemone ... an object"),
    ("no probabilities", "choice"): Gist("no probabilities"),
    ("other type", "choice"): Gist('the text "box" ... a choice'),
    (
        "answers as list",
        "choice",
    ): Gist("'answers' is a list ... systemone ... an object"),
    ("question missing", "choice"): Gist("question has no answer"),
    ("refusal", "noul"): "refused",
    ("prompt feedback", "score"): "refused: the input was blocked (SAFETY)",
    ("a list", "choice"): Gist("JSON is a list, not an object"),
}
"""What makes an answer missing, under which reason."""


@pytest.mark.parametrize(("behaviour", "kind"), MISSING)
def test_an_answer_that_is_no_distribution_is_missing_and_says_why(
    behaviour: str, kind: str
) -> None:
    asked = {"choice": CHOICE, "noul": NOUL, "score": SCORE}[kind]
    answer = exchanged(asked, TOLD[kind], "systemone", behaviour)
    assert (answer.probabilities, answer.missing, answer.retry) == (
        None,
        MISSING[behaviour, kind],
        False,
    )
    assert answer.refused == (behaviour in ("refusal", "prompt feedback"))
    assert answer.usage or behaviour == "a list"  # what was paid is known all the same


ACCEPTED = {
    ("two decimals", "choice", (0.333, 0.333, 0.334)): ((0.33, 0.33, 0.33), ()),
    ("four decimals", "choice", (0.33333, 0.33333, 0.33334)): ((0.3333, 0.3333, 0.3333), ()),
    ("two decimals", "choice", (0.2, 0.1, 0.68)): ((0.2, 0.1, 0.68), ("sum",)),
    ("two decimals", "choice", (0.2, 0.1, 0.72)): ((0.2, 0.1, 0.72), ("sum",)),
    ("sum a little off", "choice", (0.25, 0.15, 0.6)): ((0.24625, 0.14775, 0.591), ("sum",)),
    ("choice not a maximum", "choice", (0.2, 0.1, 0.7)): ((0.2, 0.1, 0.7), ("choice",)),
    ("choice last of a tie", "choice", (0.45, 0.1, 0.45)): ((0.45, 0.1, 0.45), ("tie",)),
    ("choice unknown", "choice", (0.2, 0.1, 0.7)): ((0.2, 0.1, 0.7), ("choice",)),
    ("noul with yes and no", "noul", (0.8, 0.2)): ((0.8, 1 - 0.8), ()),
    ("noul with true and false", "noul", (0.8, 0.2)): ((0.8, 1 - 0.8), ()),
    ("noul differs", "noul", (0.8, 0.2)): ((0.5, 0.5), ("noul",)),
    ("score differs", "score", (0.1, 0.2, 0.7)): ((0.1, 0.2, 0.7), ("score",)),
    ("legend as list", "score", (0.1, 0.2, 0.7)): ((0.1, 0.2, 0.7), ()),
    ("legend in reverse", "score", (0.1, 0.2, 0.7)): ((0.1, 0.2, 0.7), ()),
    ("legend in part", "score", (0.1, 0.2, 0.7)): ((0.1, 0.2, 0.7), ()),
    ("noul clipped", "noul", (0.999, 0.001)): ((0.99, 1 - 0.99), ()),
}
"""What is taken as it is, and what else is said of it."""


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case[0])
def test_an_answer_that_contradicts_itself_keeps_its_probabilities(
    case: tuple[str, str, tuple[float, ...]],
) -> None:
    behaviour, kind, told = case
    probabilities, contradictions = ACCEPTED[case]
    asked = {"choice": CHOICE, "noul": NOUL, "score": SCORE}[kind]
    answer = exchanged(asked, told, "systemone", behaviour)
    assert answer.missing is None
    assert answer.probabilities == pytest.approx(probabilities, abs=1e-15)
    assert tuple(each.partition(":")[0] for each in answer.contradictions) == contradictions


def test_the_published_score_beside_rounded_probabilities_is_no_contradiction() -> None:
    """.09 beside .94, .04, .02, whose mean is .08, and .61 beside .45, .48, .07, whose mean is .62."""
    for score, told in ((0.09, (0.94, 0.04, 0.02)), (0.61, (0.45, 0.48, 0.07))):
        body: JSON = {
            "type": "score",
            "score": score,
            "probabilities": {str(i): p for i, p in enumerate(told)},
        }
        answer = DIALECTS["systemone"].read(as_json({"model": "m", "answers": {"q": body}}), SCORE)
        assert (answer.probabilities, answer.contradictions) == (told, ())


def test_a_question_with_two_answers_has_none() -> None:
    body = {
        "type": "predicate",
        "name": "q",
        "probabilities": [{"value": True, "probability": 0.8}],
    }
    answer = DIALECTS["openai"].read(as_json({"model": "m", "answers": [body, body]}), NOUL)
    assert (answer.probabilities, answer.missing) == (None, Gist("two answers"))


def test_notes_are_harmless() -> None:
    for behaviour, note in (
        ("sorted", "order"),
        ("question extra", "answers"),
        ("model absent", "model"),
    ):
        answer = exchanged(CHOICE, TOLD["choice"], "systemone", behaviour)
        assert answer.probabilities == TOLD["choice"], behaviour
        assert [each.partition(":")[0] for each in answer.notes] == [note]
    answer = exchanged(CHOICE, TOLD["choice"], "systemone", "confidence a text")
    assert (answer.probabilities, answer.confidence) == (TOLD["choice"], None)
    assert answer.notes == (Gist('confidence ... the text "high"'),)


RETRIED = {
    "systemone": [
        b"",
        b"<html><body>nginx</body></html>",
        b'{"answers": {"q": {"type": "ch',
        b'{"error": {"code": 500}}',
    ],
    "cloudflare": [
        b'{"result": null, "success": false, "errors": [{"code": 3040, "message": "capacity"}]}'
    ],
}


@pytest.mark.parametrize(
    ("dialect", "body"), [(name, body) for name, bodies in RETRIED.items() for body in bodies]
)
def test_a_body_that_is_an_error_is_asked_for_again(dialect: str, body: bytes) -> None:
    answer = DIALECTS[dialect].read(body, CHOICE)
    assert (answer.probabilities, answer.retry) == (None, True)
    assert answer.missing is not None


def test_an_answer_without_its_envelope_is_missing() -> None:
    answer = exchanged(CHOICE, TOLD["choice"], "cloudflare", "no envelope")
    assert (answer.missing, answer.retry) == (Gist("no object 'result'"), False)


JUNK = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-2, 10**400), st.text(max_size=3), st.just([]), st.just([{}]),
    st.just({}), st.just([0.5, 0.5]), st.just({"value": [1]}),
)  # fmt: skip


def spoiled(value: object, junk: object, place: int) -> tuple[object, int]:
    """``value`` with its part number ``place``, counted in depth, replaced by ``junk``; what is left to count."""
    if place == 0:
        return junk, -1
    place -= 1
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    changed = {}
    for key, part in parts:
        changed[key], place = spoiled(part, junk, place) if place >= 0 else (part, place)
    return (
        changed
        if isinstance(value, dict)
        else [*changed.values()]
        if isinstance(value, list)
        else value
    ), place


@given(
    data=st.data(),
    dialect=st.sampled_from([*DIALECTS]),
    asked=st.sampled_from([BARE, BARE_NOUL, SIX]),
)
@settings(max_examples=200, deadline=None)
def test_nothing_that_a_server_sends_raises(
    data: st.DataObject, dialect: str, asked: TypedQuestion
) -> None:
    """A whole answer in which one part is another thing, cut short or not."""
    service = DecisionService(lambda asked: [1 / len(asked.keys)] * len(asked.keys), dialect)
    service.mass = 0.5
    answer = service.answer(
        "POST", ROUTES[dialect], json.loads(DIALECTS[dialect].body(asked, "decider"))
    )
    junk, place = data.draw(JUNK, "junk"), data.draw(st.integers(0, 30), "place")
    content = as_json(spoiled(answer, junk, place)[0])
    read = DIALECTS[dialect].read(
        content[: data.draw(st.sampled_from([None, -3, 9]), "end")], asked
    )
    assert (read.probabilities is None) == (read.missing is not None)
    assert not read.retry or read.missing


def named(count: int) -> TypedQuestion:
    return TypedQuestion(
        "choice", STATE, "?", tuple(f"n{n}" for n in range(count)), (None,) * count
    )


def levels(count: int) -> TypedQuestion:
    return TypedQuestion("score", STATE, "?", tuple(f"n{n}" for n in range(count)), (None,) * count)


def changed(asked: TypedQuestion, **changes: object) -> TypedQuestion:
    fields = {name: getattr(asked, name) for name in asked.__dataclass_fields__}
    return TypedQuestion(**{**fields, **changes})


REFUSED = {
    "systemone": [named(1), named(256), levels(27)],
    "openai": [
        named(256),
        levels(11),
        NOUL,
        changed(BARE, state="[1, 2]"),
        changed(BARE, state="[" * 40 + "]" * 40),
    ],
    "sglang": [named(27), levels(11), changed(BARE, instructions=" "), changed(BARE, state='" "')],
    "google": [
        named(256),
        levels(256),
        changed(BARE, names=("a", "b\n", "c")),
        changed(CHOICE, descriptions=("{}",) * 3),
    ],
    "cloudflare": [named(256), levels(11), levels(1)],
    "autotrust": [levels(5), levels(7), NOUL, changed(BARE, descriptions=('"x"', '"x"', '"y"'))],
}
EVERYWHERE = [
    changed(BARE, names=("oxygen", "Oxygen ", "helium")),
    changed(BARE, names=("oxygen", " ", "helium")),
    changed(BARE, kind="box"),
    changed(BARE, state="3"),
    changed(BARE, state="no JSON"),
    changed(BARE, instructions="\ud800"),
    changed(NOUL, names=("no", "yes"), descriptions=(None, None)),
    changed(SCORE, descriptions=(None, "{}", None)),
]


def test_what_a_dialect_does_not_have_is_refused_before_it_is_sent() -> None:
    for name, dialect in DIALECTS.items():
        refused = [*REFUSED[name], *EVERYWHERE]
        assert [asked for asked in refused if dialect.objection(asked) is None] == [], name
    assert DIALECTS["openai"].objection(NOUL) == (
        Gist("openai ... descriptions of the options ... noul")
    )
    assert DIALECTS["systemone"].objection(named(256)) == (
        Gist("2 to 255 options ... systemone, not 256")
    )


def test_confidences_are_those_of_their_authors() -> None:
    """Label log-probabilities -.5, -1.5 and -4, as vLLM, TypeSafe and Google count; a score of .1, .2, .7."""
    told = (0.71527, 0.26313, 0.02160)
    assert confidences("choice", told, 0.84798) == pytest.approx(
        {"typesafe": 0.57290, "p-max": 0.71527, "p-mass": 0.60653}, abs=1e-5
    )
    assert confidences("score", (0.1, 0.2, 0.7))["typesafe"] == pytest.approx(0.4)
    for name, value in confidences("choice", told, 0.84798).items():
        assert formulas_of(value, "choice", told, 0.84798) == (name,)
    assert formulas_of(0.57, "choice", (0.72, 0.26, 0.02)) == (
        "typesafe",
    )  # rounded, .58 from rounded values
    assert formulas_of(0.3, "choice", told, 0.84798) == ()


@pytest.mark.parametrize("formula", ["typesafe", "p-max", "p-mass"])
def test_a_servers_own_confidence_is_named(formula: str) -> None:
    service = DecisionService(lambda _: TOLD["choice"])
    service.confidence, service.mass = formula, 0.875
    dialect = DIALECTS["systemone"]
    answer = dialect.read(
        as_json(service.answer("POST", ROUTES["systemone"], json.loads(dialect.body(CHOICE, "m")))),
        CHOICE,
    )
    assert answer.confidence is not None
    assert answer.probabilities is not None
    assert formulas_of(
        answer.confidence, "choice", answer.probabilities, label_mass(answer.diagnostics)
    ) == (formula,)
    assert answer.diagnostics == {"label_mass": 0.875, "argmax_is_label": True}
