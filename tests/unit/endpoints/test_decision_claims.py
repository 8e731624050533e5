"""Claims of a decision endpoint: what a server can not have measured is doubted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from choicewise.extensions.endpoints.decisions.claims import checks
from tests.helpers.messages import Gist


@dataclass(frozen=True)
class Answer:
    probabilities: Sequence[float] | None
    kind: str = "noul"
    confidence: float | None = None
    diagnostics: Mapping[str, float | bool] = field(default_factory=dict)


def doubts(answers: Sequence[Answer]) -> dict[str, str]:
    return {row.description: row.doubt for row in checks(answers)}


def test_a_server_is_doubted_for_what_it_can_not_have_measured() -> None:
    plain = [Answer((p, 1 - p), confidence=max(p, 1 - p)) for p in (0.0132, 0.61234, 0.98217)]
    about = (
        "step of probabilities",
        "sum of an answer",
        "probability of yes",
        "confidence agrees with",
    )
    assert doubts([*plain, Answer(None)]) == dict.fromkeys(about, "")
    told = {row.description: row.says for row in checks(plain)}
    assert told["confidence agrees with"] == "p-max"
    clipped = [Answer((p, 1 - p)) for p in (0.01, 0.5, 0.99)]
    assert doubts(clipped)["probability of yes"] == Gist(
        "clipped: 2 at 0.01 or 0.99, none beyond; ... 4.605"
    )
    assert doubts([*clipped, Answer((0.002, 0.998))])["probability of yes"] == ""
    constant = [Answer((0.3, 0.7), diagnostics={"label_mass": 1.0, "argmax_is_label": True})] * 2
    found = doubts(constant)
    assert found["label mass"] == "not measured: constant"
    assert found["likeliest token a label"] == Gist("not measured: the mass")
    varied = [
        Answer((0.3, 0.7), diagnostics={"x_label_mass": mass, "argmax_is_label": True})
        for mass in (0.4, 0.9)
    ]
    found = doubts(varied)
    assert (found["label mass"], found["likeliest token a label"]) == ("below a half in 1 of 2", "")
    assert (
        doubts([Answer((0.98, 0.01)), Answer((0.5, 0.5))])["sum of an answer"] == "1 of 2 are not 1"
    )
    assert (
        doubts([Answer((0.3, 0.7), confidence=0.1)])["confidence agrees with"] == "no known formula"
    )
