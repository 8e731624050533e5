"""A decision endpoint as a model: its numbers are the server's, what fails is missing or stops, all of it is kept."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from choicewise import Run, evaluate, open_run
from choicewise.bundled import MODELS
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, StoreError
from choicewise.extensions.endpoints.decisions.decision_model import DecisionModel
from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName
from choicewise.extensions.endpoints.decisions.endpoint_report import repeats_line
from choicewise.extensions.endpoints.decisions.exchange import (
    Exchange,
    Repeat,
    of_repeats,
    stored_text,
)
from choicewise.extensions.endpoints.decisions.summary import (
    endpoint_record,
    endpoint_summary,
    exchanges,
)
from choicewise.models.load import load_model
from choicewise.protocols.catalogue import one
from choicewise.questions import Decision, Span, TypedQuestion
from choicewise.records import EndpointRecord
from tests.helpers.commands import choicewise
from tests.helpers.decision_server import ROUTES, STATUSES, Asked, behave, serving_decisions
from tests.helpers.misbehaving_server import Received, Server

pytestmark = pytest.mark.usefixtures("no_pauses")

ENDPOINT = "decision/endpoint:choice"
COLOURS = ("ruby", "jade", "coal")
WEIGHTS = {"ruby": 6.0, "jade": 3.0, "coal": 1.0, "red": 3.0, "blue": 1.0, "yes": 4.0, "no": 1.0}
EXTRA = 4  # requests of the probe before the first question


def told(asked: Asked) -> Sequence[float]:
    """By the names of the options, and a little by the state, whose end counts."""
    weights = [
        WEIGHTS.get(key, 2.0 + place) + (key in asked.state[-40:])
        for place, key in enumerate(asked.keys)
    ]
    return [weight / sum(weights) for weight in weights]


def quiz(count: int = 6) -> Dataset:
    items = (
        Item(f"q{number}", f"What is stone {number} like?", COLOURS, (number % 3,))
        for number in range(count)
    )
    return Dataset("stones", {"test": tuple(items)})


@pytest.fixture
def server() -> Iterator[Server]:
    with serving_decisions(told) as server:
        yield server


def name(server: Server, *options: str) -> str:
    return ",".join([f"decisions:{server.url}#decider", *options])


def run(
    server: Server,
    out: Path,
    data: Dataset | None = None,
    protocol: str = ENDPOINT,
    *options: str,
    **more: Any,
) -> Run:
    asked = {"protocols": [f"{protocol}@split=test"], "data": data or quiz(), **more}
    return evaluate(model=load_model(name(server, *options)), out=out, **asked)


def one_at_a_time(model: Any) -> None:
    model.client.concurrency.limit = model.client.concurrency.most = 1


def kept(run: Run) -> list[Exchange]:
    return [*exchanges(run.folder, run.manifest)]


@pytest.mark.parametrize("dialect", ROUTES)
def test_the_probabilities_are_those_of_the_server_in_every_dialect(
    dialect: str, tmp_path: Path
) -> None:
    with serving_decisions(told, dialect) as server:
        observed = run(server, tmp_path / "run", None, ENDPOINT, f"dialect={dialect}")
        assert {request.path for request in server.requests} == {ROUTES[dialect]}
        assert (
            len(server.requests) == EXTRA + 2 * 6 + 1
        )  # each of the questions twice, and the probe once more
    np.testing.assert_allclose(
        np.exp(observed.scores()["score"].to_numpy()), [0.6, 0.3, 0.1] * 6, rtol=1e-6
    )
    assert [row.value for row in observed.rows()] == [pytest.approx(1 / 3)]
    assert observed.manifest.server is not None
    assert observed.manifest.server.endpoint == EndpointRecord(dialect, 6)


def test_options_of_one_question_are_one_request_whose_bytes_are_kept(
    server: Server, tmp_path: Path
) -> None:
    """And the answer's, its diagnostics, and the answer of a question that was sent twice."""
    service: Any = server.model
    service.mass, service.confidence = 0.75, "p-mass"
    observed = run(server, tmp_path / "run", quiz(3), ENDPOINT, "repeats=1")
    asked = server.requests[EXTRA:-1]
    assert len(asked) == 4
    own = kept(observed)
    assert sorted(each.request for each in own) == sorted(
        {request.content.decode() for request in asked}
    )
    assert [*json.loads(own[0].request)["questions"]["q"]["criteria"]] == [*COLOURS]
    for each in own:
        answer = json.loads(each.response or "")
        assert answer["answers"]["q"]["probabilities"] == dict(
            zip(COLOURS, each.probabilities or (), strict=True)
        )
        assert (each.model, each.path, each.diagnostics) == (
            "decider",
            "systemone",
            {"label_mass": 0.75, "argmax_is_label": True},
        )
        assert (each.confidence, each.recomputed) == (pytest.approx(0.45), pytest.approx(0.4))
        assert each.usage["output_tokens"] == 1
    (twice,) = (each for each in own if each.repeat)
    assert twice.repeat is not None
    assert (twice.repeat.probabilities, twice.repeat.response) == (
        twice.probabilities,
        twice.response,
    )
    summary = endpoint_summary(observed)
    assert summary is not None
    assert (summary.confidence, summary.recomputed, summary.models) == (3, 3, {"decider": 3})


def of_questions(request: Received) -> bool:
    return b"stone" in request.content


STOPS = {
    "401": "without a key.*set CHOICEWISE_API_KEY",
    "403": "without a key.*set CHOICEWISE_API_KEY",
    "404": "no such model .*dialect",
    "501": "status 501.*decision/vllm-0.32",
    "429 of a daily quota": "quota of the key .*same command again",
    "429": "busy, status 429.*same command again",
    "503": "busy, status 503.*same command again",
    "529": "busy, status 529.*same command again",
}


@pytest.mark.parametrize(("status", "words"), STOPS.items())
def test_what_concerns_all_questions_stops_with_one_message(
    status: str, words: str, server: Server, tmp_path: Path
) -> None:
    """Before the first question and after it; nothing is taken for an answer."""
    behave(server, status)
    with pytest.raises(ModelError, match=words):
        run(server, tmp_path / "first")
    assert not (tmp_path / "first").exists()
    behave(server)
    server.when(of_questions, STATUSES[status])
    with pytest.raises(ModelError, match=words):
        run(server, tmp_path / "later")


MISSING = {
    "400": "status 400: 'max_tokens_exceeded'",
    "413": "status 413: .*state too long",
    "422": "status 422: .*Field required",
    "504": "status 504.*, 5 times",
    "204": "status 204 and no decision, 5 times",
    "HTML": "it is HTML, 5 times",
    "truncated JSON": ", 5 times",
}


@pytest.mark.parametrize(("status", "words"), MISSING.items())
def test_what_concerns_one_question_makes_its_item_missing(
    status: str, words: str, server: Server, tmp_path: Path
) -> None:
    """What may heal is sent again, five times at most, what can't is not; the others are answered."""
    server.when(lambda request: b"stone 2" in request.content, STATUSES[status])
    observed = run(server, tmp_path / "run", None, ENDPOINT, "repeats=0")
    (row,) = observed.rows()
    assert (row.counts.n, row.counts.missing) == (5, 1)
    (reason,) = row.missing_reasons
    assert re.search(words, reason.reason)
    assert sum(b"stone 2" in request.content for request in server.requests) == (
        5 if "5 times" in words else 1
    )


@pytest.mark.parametrize(
    "status", ["429 with milliseconds", "503", "204", "HTML", "truncated JSON", "529"]
)
def test_what_heals_is_answered(status: str, server: Server, tmp_path: Path) -> None:
    model = load_model(name(server, "repeats=0"))
    assert model.digest
    server.next(STATUSES[status], STATUSES[status])
    observed = evaluate(
        model=model, data=quiz(), protocols=[f"{ENDPOINT}@split=test"], out=tmp_path / "run"
    )
    assert [(row.counts.n, row.counts.missing) for row in observed.rows()] == [(6, 0)]


WRONG = {
    "NaN": "'ruby' is NaN",
    "all zero": "sum to 0",
    "option missing": "no probability for 'ruby'",
    "refusal": "refused",
    "success false": "capacity temporarily exceeded.*5 times",
}


@pytest.mark.parametrize(("behaviour", "words"), WRONG.items())
def test_no_distribution_is_missing_and_kept_as_it_came(
    behaviour: str, words: str, server: Server, tmp_path: Path
) -> None:
    model = load_model(name(server, "repeats=0"))
    assert model.digest
    service: Any = server.model
    own = service.answer

    def answer(method: str, path: str, body: Any) -> Any:
        behave(server, *([behaviour] if "stone 2" in json.dumps(body) else []))
        return own(method, path, body)

    service.answer = answer
    one_at_a_time(model)  # behaviours are the server's, not a request's
    observed = evaluate(
        model=model, data=quiz(), protocols=[f"{ENDPOINT}@split=test"], out=tmp_path / "run"
    )
    (row,) = observed.rows()
    assert (row.counts.n, row.counts.missing) == (5, 1)
    (lost,) = (each for each in kept(observed) if each.missing)
    assert re.search(words, lost.missing or "")
    assert (lost.response is None) == (behaviour == "success false")
    summary = endpoint_summary(observed)
    assert summary is not None
    (protocol,) = summary.protocols
    refused = int(behaviour == "refusal")
    assert (protocol.refused, lost.refused) == (refused, bool(refused))
    assert protocol.as_wrong == pytest.approx(protocol.value * 5 / (5 + refused))
    service.answer = own
    behave(server)
    again = run(
        server, tmp_path / "run", None, ENDPOINT, "repeats=0"
    )  # asks what had no answer, and nothing else
    assert [(row.counts.n, row.counts.missing) for row in again.rows()] == [(6, 0)]
    assert [each.missing for each in kept(again)] == [None] * 6


def test_another_model_stops_the_run_and_what_was_answered_stays(
    server: Server, tmp_path: Path
) -> None:
    service: Any = server.model
    own, asked, changing = service.answer, list[str](), ["stone 4"]

    def answer(method: str, path: str, body: Any) -> Any:
        stones = re.findall("stone .", json.dumps(body))[:1]
        asked.extend(stones)
        service.name = "decider-2" if stones and stones == changing else "decider"
        return own(method, path, body)

    service.answer = answer
    model = load_model(name(server, "repeats=0"))
    one_at_a_time(model)
    with pytest.raises(
        ModelError, match="from model 'decider-2', earlier ones from 'decider'.*again to resume"
    ):
        evaluate(
            model=model, data=quiz(), protocols=[f"{ENDPOINT}@split=test"], out=tmp_path / "run"
        )
    before = asked[: asked.index("stone 4")]  # one after it may be under way when the run stops
    assert 0 < len(before) == len(kept(open_run(tmp_path / "run")))
    asked.clear()
    changing.clear()
    observed = run(server, tmp_path / "run", None, ENDPOINT, "repeats=0")
    assert [(row.counts.n, row.counts.missing) for row in observed.rows()] == [(6, 0)]
    assert sorted([*before, *asked]) == [
        f"stone {number}" for number in range(6)
    ]  # nothing is asked again
    service.name, service.answer = "decider-3", own
    with pytest.raises(
        StoreError, match=r"answers differently than [^\n]+\n.* decider then, decider-3 now"
    ):
        run(server, tmp_path / "run", None, "decision/endpoint-letter", "repeats=0")


def test_repeats_measure_the_noise_and_what_is_kept_of_them_adds_up(
    server: Server, tmp_path: Path
) -> None:
    behave(server, "other numbers")
    observed = run(server, tmp_path / "run", quiz(30))
    twice = [
        (each.probabilities, each.repeat.probabilities) for each in kept(observed) if each.repeat
    ]
    assert len(twice) == 20
    distances = np.abs([np.subtract(*each) for each in twice])
    record = endpoint_record(observed.folder, observed.manifest)
    assert record is not None
    assert (record.repeated, record.mean, record.most) == (
        20,
        pytest.approx(distances.mean()),
        pytest.approx(distances.max()),
    )
    assert record.most > 0
    assert observed.noise is not None
    assert observed.noise > 0
    one, other = (of_repeats("openai", part) for part in (twice[:7], twice[7:]))  # type: ignore[arg-type]
    assert "20 questions sent twice" in repeats_line(record)
    whole = of_repeats("openai", twice)  # type: ignore[arg-type]
    assert one + other == EndpointRecord(
        "openai", 20, whole.flips, pytest.approx(whole.mean), whole.most
    )
    assert of_repeats("openai", [((0.6, 0.4), (0.3, 0.7))]) == EndpointRecord(
        "openai", 1, 1, pytest.approx(0.3), pytest.approx(0.3)
    )


@pytest.mark.parametrize(("behaviour", "doubts"), [("", 0), ("state cut", 2)])
def test_a_state_that_is_cut_without_a_word_is_doubted(
    behaviour: str, doubts: int, server: Server
) -> None:
    behave(server, *filter(None, [behaviour]))
    model = DecisionModel(EndpointName.parse(name(server)))
    assert model.record.endpoint is not None
    assert [doubt[:10] for doubt in model.record.endpoint.doubts] == ["truncated?"] * doubts
    assert model.notes == [*model.record.endpoint.doubts]
    assert len(server.requests) == EXTRA


def test_questions_that_a_dialect_does_not_have_are_not_sent(
    server: Server, tmp_path: Path
) -> None:
    many = Item("many", "Which stone?", tuple(f"option {number}" for number in range(256)), (0,))
    data = Dataset("stones", {"test": (many, *quiz(2).splits["test"])})
    observed = run(server, tmp_path / "run", data, ENDPOINT, "repeats=0")
    (row,) = observed.rows()
    assert (row.counts.n, row.counts.missing) == (2, 1)
    assert "2 to 255 options" in row.missing_reasons[0].reason
    assert len(server.requests) == EXTRA + 2 + 1


def test_options_that_are_asked_alone_say_so(server: Server) -> None:
    """As where a run was killed between two options of one question, whose answers are then of two requests."""
    model = DecisionModel(EndpointName.parse(name(server)))
    asked = TypedQuestion("choice", '"state"', "Which?", COLOURS, (None,) * 3)
    (answer,) = (scores for _, scores in model.answer([Decision(asked, 1)]))
    assert Exchange.of(answer.exchange or "").options == [1]
    (*_, whole) = (
        scores for _, scores in model.answer([Decision(asked, place) for place in (2, 1, 0)])
    )
    assert (whole.tokens.tolist(), whole.ranks.tolist(), whole.exchange) == ([2], [2], None)


def test_no_key_is_written_though_the_server_repeats_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-planted/0123456789"
    monkeypatch.setenv("CHOICEWISE_API_KEY", key)
    service: Any = server.model
    own = service.answer
    named = {
        "diagnostics": {"q": {key: 1.0}},
        "usage": {"input_tokens": 1, key: 2},
    }  # also where a name belongs
    service.answer = lambda *request: {**own(*request), "you": key, **named}
    server.key = key
    observed = run(server, tmp_path / "run")
    assert "[key]" in (kept(observed)[0].response or "")
    assert "[key]" in kept(observed)[0].diagnostics
    assert "[key]" in kept(observed)[0].usage
    assert key not in repr(observed.observations().to_pylist())
    assert not any(
        key.encode() in file.read_bytes()
        for file in (tmp_path / "run").rglob("*")
        if file.is_file()
    )


def test_shards_of_a_run_are_merged_with_their_repeats(server: Server, tmp_path: Path) -> None:
    for number in (1, 2):
        run(server, tmp_path / f"{number}", None, ENDPOINT, shard=f"{number}/2")
    choicewise("merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "whole", code=0)
    whole = open_run(tmp_path / "whole")
    assert len(kept(whole)) == 6
    assert whole.manifest.server is not None
    assert whole.manifest.server.endpoint == EndpointRecord("systemone", 6)


EXCHANGES = [
    Exchange("decide", "{}", "2026-11-26T03:00:00+00:00"),
    Exchange(
        "p",
        "{}",
        "d",
        stored_text(b"\xff\x00"),
        confidence=0.0,
        probabilities=[0.0, 1.0],
        missing="no",
    ),
    Exchange(
        "p",
        "{}",
        "d",
        "\u2028",
        usage={"a": 0.0},
        options=[1],
        repeat=Repeat("e", None, None, "not now"),
    ),
]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_is_kept_reads_back_as_it_was(exchange: Exchange) -> None:
    assert Exchange.of(exchange.text) == exchange


NAMES = {
    "decisions:https://h/v1": "names no model",
    "decisions:https://h/v1#m,dialect=foo": "no dialect 'foo'; available: systemone",
    "decisions:https://h/v1#m,dialekt=openai": "has no option 'dialekt'; did you mean dialect",
    "decisions:https://h/v1#m,repeats=-1": "repeats is '-1'",
    "decisions:https://h/v1#m,repeats=1,repeats=2": "names repeats twice",
    "decisions:https://h/v1/systemone#m": "remove /systemone",
    "decisions:https://u:p@h/v1#m": "credentials",
    "decisions:h/v1#m": "must start with http.*decisions:http://HOST",
}


@pytest.mark.parametrize(("text", "words"), NAMES.items())
def test_names_that_are_none_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        EndpointName.parse(text)


@pytest.mark.parametrize(
    "option", [{"window": 9}, {"tokenizer": "x"}, {"dtype": "float32"}, {"adapter": "x"}]
)
def test_options_that_mean_nothing_for_an_endpoint_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(option))} does not apply"):
        load_model("decisions:https://h/v1#@cf/cloudflare/clef,dialect=cloudflare", **option)


@pytest.mark.costly("computes on the bundled model")
def test_what_a_server_answers_from_a_model_here_is_what_its_layout_computes(
    tmp_path: Path,
) -> None:
    """The prompt of vLLM 0.32 is written and scored for every request; served less computed is 0."""
    shutil.copytree(
        next(each for each in MODELS if each.name == "merrow-bpe-2048"), tmp_path / "chatty"
    )
    (tmp_path / "chatty" / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.content }}]\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    model, lock = load_model(tmp_path / "chatty"), Lock()
    assert model.digest
    here = copy_context()  # what torch is told holds in this thread

    def computed(asked: Asked) -> Sequence[float]:
        labels = "ABCD"[: len(asked.keys)]
        lines = "".join(f"{label}: {key}\n" for label, key in zip(labels, asked.keys, strict=True))
        ask = f"Question: {asked.instructions}\n{lines}Answer with the letter of one option only."
        text = f"[{asked.state}\n\n{ask}]\n>"
        context, *wholes = model.tokenizer.encode(
            [text, *(text + label for label in labels)], special=True
        )
        assert all(np.array_equal(whole[:-1], context) for whole in wholes)
        with lock:
            answers = here.run(dict, model.answer([Span(context, whole[-1:]) for whole in wholes]))
        logs = np.array(
            [answers[place].logprobs[0] for place in range(len(labels))], dtype=np.float64
        )
        return [float(share) for share in np.exp(logs) / np.exp(logs).sum()]

    runs = list[Run]()
    asked: dict[str, Any] = {"data": "bundled:merrowick", "subjects": ["law"], "limit": 5}
    with serving_decisions(computed) as server:
        for protocol, each in (
            (ENDPOINT, load_model(name(server))),
            ("decision/vllm-0.32:choice", model),
        ):
            metrics = {
                metric: replace(one(protocol).protocol, metric=metric)
                for metric in ("acc", "norm-prob", "brier")
            }
            runs.append(
                evaluate(model=each, protocols=metrics, out=tmp_path / f"{len(runs)}", **asked)
            )
    served, own = ([row.value for row in each.rows()] for each in runs)
    np.testing.assert_allclose(served, own, atol=2e-6)
    scores = [
        [row["score"] for row in each.scores().to_pylist() if row["protocol"] == "acc"]
        for each in runs
    ]
    shares = [np.exp(np.array(each)).reshape(5, 4) for each in scores]
    np.testing.assert_allclose(
        shares[0], shares[1] / shares[1].sum(axis=1, keepdims=True), atol=2e-6
    )


def test_a_run_a_report_and_an_item_by_commands(server: Server, tmp_path: Path) -> None:
    """Other readings are refused by name; the item shows the bytes, and the run what the answers said beside them."""
    service: Any = server.model
    behave(server, "choice not a maximum")
    service.mass = 0.5
    out, model = tmp_path / "run", name(server)
    words = ["--data", "bundled:merrowick", "--subject", "law", "--limit", 3, "--out", out]
    told = choicewise(
        "run",
        "--model",
        model,
        "--protocol",
        "decision/endpoint-letter",
        "--protocol",
        "mmlu/original",
        *words,
    )
    assert told.code == 0
    assert "mmlu/original is refused: " in told.stderr
    assert "use decision/endpoint or decision/endpoint-letter" in " ".join(told.stderr.split())
    shown = choicewise("report", out, "endpoint", code=0).stdout
    assert "contradictions: choice (3)" in shown
    assert "3 questions sent twice: 0 got another answer" in " ".join(shown.split())
    whole, _ = json.loads(choicewise("report", out, "endpoint", "--json", code=0).stdout)
    assert (whole["questions"], whole["contradictions"], whole["endpoint"]["repeated"]) == (
        3,
        {"choice": 3},
        3,
    )
    for more in ([], ["--tokens"]):
        item = choicewise("explain", out, "--item", "law/test/0", *more, code=0).stdout
        assert '"criteria": {"A": "The driver' in " ".join(item.split())
        assert "label_mass 0.5" in item
        assert "! choice: it is" in item
    assert "3 questions sent twice" in choicewise("report", out, code=0).stderr
    checked = choicewise("check", "--model", model, code=0).stdout
    assert "decisions, dialect systemone" in checked
    assert choicewise("doctor", out, code=0).code == 0
    assert (
        choicewise(
            "run", "--model", model, "--protocol", "mmlu/original", *words[:-1], tmp_path / "other"
        ).code
        == 5
    )
