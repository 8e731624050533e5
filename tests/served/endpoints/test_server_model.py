"""A model at a server: the numbers of one here, whatever it can, and no score from a wrong answer."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise import Run, evaluate, open_dataset
from choicewise import questions as kinds
from choicewise.data.dataset import Dataset
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.check import Plausible, plausible
from choicewise.extensions.endpoints.server import routes as fields
from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.faults import ServerFailed, Unanswerable
from choicewise.extensions.endpoints.server.next_token_routes import bound, check_listed
from choicewise.extensions.endpoints.server.server_model import WINDOW, ServerModel
from choicewise.models.fake import HashModel
from choicewise.questions import (
    LENGTH,
    STOP,
    Ended,
    Generation,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.tokens.chat_template import Message
from tests.helpers import served_model
from tests.helpers.messages import Gist
from tests.helpers.misbehaving_server import Fault, Server, serving
from tests.helpers.models_at_servers import ids, model_at
from tests.helpers.models_at_servers import served_model as served
from tests.helpers.served_model import (
    BOS,
    CHAT_ONLY,
    JSON,
    LLAMA_CPP,
    TOP_ONLY,
    VLLM,
    Ability,
    ServedModel,
    log_probabilities,
)
from tests.helpers.server_faults import ANSWER_FAULTS

pytestmark = pytest.mark.usefixtures("no_pauses")

WITHOUT_CHOICE = replace(VLLM, token_choice=False, prompt_logprobs=True)  # an older vLLM

ECHO = replace(
    VLLM, name="", token_choice=False, prompt_logprobs=False, token_names=False, tokenize=False
)
"""OpenAI's protocol with an echo of tokens, and no more."""

HASH = HashModel()


def answers(model: ServerModel | HashModel, questions: list[Prompt]) -> list[TokenScores]:
    of = dict(model.answer(questions))
    return [of[index] for index in range(len(questions))]


def same(given: TokenScores, true: TokenScores) -> None:
    """The same tokens and log-probabilities, and what is said of the ranks is so."""
    assert given.missing is None
    assert not given.at_most
    assert given.tokens.tolist() == true.tokens.tolist()
    np.testing.assert_allclose(given.logprobs, true.logprobs, atol=2e-6)
    for said, rank in zip(given.ranks.tolist(), true.ranks.tolist(), strict=True):
        assert (
            rank <= said <= rank + 2 if said >= 0 else rank >= -1 - said
        )  # vLLM counts equals as likelier


@pytest.fixture(scope="module")
def vllm() -> Iterator[ServerModel]:
    with served(VLLM) as model:
        yield model


TEXTS = st.lists(st.sampled_from(b"ab \n"), min_size=1, max_size=40).map(
    lambda tokens: ids(256, *tokens)
)
ENDS = st.lists(st.sampled_from(b"abc"), min_size=1, max_size=30).map(lambda tokens: ids(*tokens))
SPANS = st.lists(st.builds(Span, TEXTS, ENDS), min_size=1, max_size=12)


@pytest.mark.costly("random trees")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=SPANS, members=st.sets(st.integers(0, 256), min_size=1, max_size=200))
def test_spans_and_masses_are_the_models_own(
    vllm: ServerModel, spans: list[Span], members: set[int]
) -> None:
    asked: list[Prompt] = [
        *spans,
        *(Mass(span.context, TokenSet(sorted(members))) for span in spans[:2]),
    ]
    for given_, true in zip(answers(vllm, asked), answers(HASH, asked), strict=True):
        same(given_, true)


@pytest.mark.parametrize(
    "ability", [WITHOUT_CHOICE, ECHO, LLAMA_CPP], ids=["old vLLM", "echo of tokens", "llama.cpp"]
)
def test_other_ways_give_the_same(ability: Ability) -> None:
    context = ids(256, *b"Where? Answer:")
    spans = [
        Span(context, ids(*end))
        for end in (b" a", b" a tree", b" the sea", b" a", b" a tree and a pond")
    ]
    with served(ability) as model:
        assert Span in model.supports
        for given_, true in zip(answers(model, [*spans]), answers(HASH, [*spans]), strict=True):
            same(given_, true)


def probed(server: Server) -> ServerModel:
    """The model of the server once it knows how to ask; what was asked for that is forgotten."""
    model = model_at(server)
    assert model.chosen.score is not None
    server.requests.clear()
    return model


def test_every_prefix_is_asked_once_in_depth_first_order(server: Server) -> None:
    context = ids(256, *b"Where does it live, in a tree or in the sea?")
    answers(probed(server), [Span(context, ids(*end)) for end in (b"bb", b"ab", b"aa", b"ab")])
    bodies = server.posted()
    prompts = [tuple(body["prompt"]) for body in bodies]
    start = tuple(context.tolist())
    assert sorted(prompts) == [start, (*start, *b"a"), (*start, *b"b")]
    assert {
        prompt: body["logprob_token_ids"] for prompt, body in zip(prompts, bodies, strict=True)
    } == {
        start: [*b"ab"],
        (*start, *b"a"): [*b"ab"],
        (*start, *b"b"): [*b"b"],
    }


def test_long_continuations_are_asked_whole(server: Server) -> None:
    context, long = ids(256, *b"Where?"), ids(*b"in the tree by the sea, where it lives")
    model, asked = probed(server), [Span(context, long), Span(context, ids(*b"\n"))]
    for given_, true in zip(answers(model, [*asked]), answers(HASH, [*asked]), strict=True):
        same(given_, true)
    assert sorted("prompt_logprobs" in body for body in server.posted()) == [False, True]


@pytest.mark.costly("servers that are probed")
def test_the_window_is_what_fits_with_a_generated_token() -> None:
    for ability, more in ((VLLM, 1), (WITHOUT_CHOICE, 2)):
        with served(replace(ability, window=400)) as model:
            assert model.window == 400 - more
            longest = Span(np.full(400 - more, 97, dtype=np.int32), ids(98))
            same(answers(model, [longest])[0], answers(HASH, [longest])[0])
    with served(TOP_ONLY) as model:
        model.chosen  # noqa: B018
        assert model.window == WINDOW - 1  # it does not say how many
    with (
        pytest.raises(ModelError, match=r"is served with 4096, .* 4095\. Serve"),
        served(VLLM, window=5000),
    ):
        pass
    words = r"leaves 4094\. .*window 4094"
    with (
        served(WITHOUT_CHOICE, window=VLLM.window - 1) as model,
        pytest.raises(ModelError, match=words),
    ):
        assert model.window


def cut_run(model: HashModel | ServerModel, out: Path) -> Run:
    """A run on two questions of which some prompts have more than 150 tokens."""
    short, other, *_ = open_dataset("bundled:merrowick").splits["test"]
    few = Dataset("few", {"test": (short, replace(other, question=3 * other.question))})
    return evaluate(model=model, data=few, protocols=["mmlu/cloze:sum@fit=cut-start"], out=out)


@pytest.fixture(scope="module")
def cut_here(tmp_path_factory: pytest.TempPathFactory) -> Run:
    here = HashModel()
    here.window = 150
    return cut_run(here, tmp_path_factory.mktemp("cut") / "here")


@pytest.mark.costly("servers that are probed")
@pytest.mark.parametrize(
    ("ability", "more"),
    [(VLLM, 1), (WITHOUT_CHOICE, 2), (ECHO, 2)],
    ids=["chosen", "prompts", "echo"],
)
@pytest.mark.parametrize("named", [True, False])
def test_prompts_are_cut_as_here(
    ability: Ability, more: int, named: bool, cut_here: Run, tmp_path: Path
) -> None:
    """At the same window, token by token: it is named for the server, or is what it takes."""
    wide = replace(ability, name="vllm", window=150 + (10 if named else more))
    with served(wide, window=150 if named else None) as model:
        assert model.window == 150
        there = cut_run(model, tmp_path / "there")
    given_, true = there.observations(), cut_here.observations()
    assert given_.num_rows == true.num_rows > 0
    for column in (
        "key",
        "context_tokens",
        "tokens_dropped",
        "tokens",
    ):  # the key is that of all tokens
        assert given_[column].to_pylist() == true[column].to_pylist(), column
    assert max(given_["tokens_dropped"].to_pylist()) > 0


def test_an_echo_that_is_off_by_one_is_found_and_named() -> None:
    with served(served_model.LLAMA_CPP_WITHOUT_BOS) as model:
        trials = {trial.rung: trial.refused for trial in model.selfcheck.trials}
        assert "other tokens" in (trials["echo, prompts as texts"] or "")
        assert model.selfcheck.rung == "top 100 next tokens, prompts as texts"
        span = Span(ids(*b"Where?"), ids(*b"ab"))
        assert model.objection(span) is not None
        assert "not longer continuations" in str(model.objection(span))
        assert "not longer continuations" in str(answers(model, [span])[0].missing)


def test_what_is_not_listed_gets_a_bound_that_holds() -> None:
    context = ids(256, *b"Where?")
    spans: list[Prompt] = [Span(context, ids(token)) for token in range(32, 127)]
    with served(TOP_ONLY) as model:
        assert Mass not in model.supports
        given_ = answers(model, spans)
    true = answers(HASH, spans)
    assert sum(not one.at_most for one in given_) <= 5
    for one, other in zip(given_, true, strict=True):
        if one.at_most:
            assert one.logprobs[0] >= other.logprobs[0]
            assert other.ranks[0] >= -1 - one.ranks[0] >= 1
        else:
            same(one, other)


def test_generations_and_more_tokens_than_a_server_lists_at_once_are_those_of_the_model(
    vllm: ServerModel,
) -> None:
    context = ids(256, *b"Where?")
    (full,) = answers(HASH, [Generation(context, 12)])
    stop = full.tokens[5:7].astype(np.uint8).tobytes()
    settings_of_stops = ({}, {"stops": (stop,)}, {"stops": (stop,), "keep_stop": True})
    asked: list[Prompt] = [Generation(context, 12, **each) for each in settings_of_stops]
    # vLLM refuses more than its --max-logprobs, 20 by default.
    asked += [Span(ids(256, 97), ids(token)) for token in range(50)] + [
        Mass(ids(256, 97), TokenSet(range(50)))
    ]
    for given_, true in zip(answers(vllm, asked), answers(HASH, asked), strict=True):
        same(given_, true)
    assert kinds.CAUSAL_KINDS - vllm.supports == {kinds.MaskedLoss, kinds.Cosine, kinds.SetSpan}


def test_samples_follow_their_streams(server: Server) -> None:
    context = ids(256, *b"Where?")
    samples: list[Prompt] = [
        Generation(context, 6, sampling=Sampling.of(1, "item", n)) for n in (1, 2, 1)
    ]
    first, other, again = answers(model_at(server), samples)
    seeds = [body["seed"] for body in server.posted() if "seed" in body]
    assert first.tokens.tolist() == again.tokens.tolist() != other.tokens.tolist()
    assert len(set(seeds)) == 2
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_chat_server_without_log_probabilities_generates() -> None:
    with served(CHAT_ONLY) as model:
        assert model.supports == {Generation, Sampling}
        assert model.tokenizer.chat is not None
        text = model.tokenizer.chat.render(
            [Message("system", "Be brief."), Message("user", 'A "question"?\n')]
        )
        (answer,) = answers(
            model, [Generation(model.tokenizer.encode([text], special=False)[0], 8)]
        )
        assert answer.text
        assert not len(answer.tokens)
        (plain,) = answers(model, [Generation(ids(*b"Where?"), 8)])
        assert "only takes chats" in str(plain.missing)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_thought_that_a_chat_server_gives_apart_is_no_answer(name: str) -> None:
    with served(CHAT_ONLY) as plain, served(replace(CHAT_ONLY, thought=name)) as model:
        assert model.tokenizer.chat is not None
        text = model.tokenizer.chat.render([Message("user", "Which?")])
        context = model.tokenizer.encode([text], special=False)[0]
        (whole,) = answers(plain, [Generation(context, 30)])
        assert whole.text is not None
        stop = next(
            each for each in whole.text[5:] if each.isascii() and each not in whole.text[:5]
        )
        (cut, ended) = answers(
            model, [Generation(context, 30, opened=""), Generation(context, 30, (stop.encode(),))]
        )
    assert (cut.text, cut.ended) == ("", Ended(LENGTH, whole.text, 30))
    before = whole.text.partition(stop)[0]
    assert (ended.text, ended.ended and ended.ended[:2]) == (
        before[-3:],
        (STOP, before[:-3] or None),
    )


def test_other_tokens_than_the_servers_are_refused(server: Server) -> None:
    model = model_at(server, "bundled:merrow-bpe-512")
    with pytest.raises(ModelError, match="merrow-bpe-512 is not the server's"):
        assert model.supports


def test_a_bos_that_is_there_twice_is_found() -> None:
    twice = replace(VLLM, bos_always=True, tokenize=False)
    with served(twice) as model, pytest.raises(ModelError, match="to other tokens"):
        assert model.supports
    with served(replace(VLLM, bos_always=True)) as model:
        trials = {trial.rung: trial.refused for trial in model.selfcheck.trials}
        assert "an added BOS?" in str(trials["next tokens, prompts as tokens"])
        assert "[256, 256] (BOS)" in str(model.objection(Span(ids(256, *b"Where?"), ids(97))))


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_noise_of_answers_is_measured(noise: float, server: Server) -> None:
    server.model.noise = noise
    model = model_at(server)
    assert (model.selfcheck.noise > 0.001) == (noise > 0)
    assert model.selfcheck.noise <= 0.1


@pytest.mark.costly("servers that are probed")
def test_the_identity_is_the_model_not_the_address() -> None:
    with served(VLLM) as one, served(VLLM) as other, served(WITHOUT_CHOICE) as third:
        assert one.digest == other.digest != third.digest
        assert (one.record.probes, one.probe_now()) == (
            other.record.probes,
            dict(one.record.probes),
        )
        assert one.record.software == "vllm 0.32.0"


def test_a_model_that_is_not_served_is_named(server: Server) -> None:
    with pytest.raises(ModelError, match="serves no model 'hush'; did you mean hash"):
        ServerModel(ServerAddress.parse(f"server:{server.url}#hush"), tokenizer="bytes")
    address = ServerAddress.parse(f"server:{server.url}")
    assert ServerModel(address, tokenizer="bytes").name == "hash"
    with pytest.raises(ModelError, match="pass a tokenizer"):
        ServerModel(address)


def test_unlikely_tokens_get_their_ranks_from_a_prompt_of_their_own_where_ranks_matter(
    server: Server,
) -> None:
    context = ids(256, *b"Where?")
    asked: list[Prompt] = [Span(context, ids(token), ranked=True) for token in b"ABCD"]
    model = probed(server)
    given_ = answers(model, asked)
    unlikely = [one for one in given_ if one.logprobs[0] < np.log(0.01)]
    assert unlikely
    assert all(one.ranks[0] >= 0 for one in unlikely)
    assert len(server.posted()) == 1 + len(unlikely)
    for one, true in zip(given_, answers(HASH, asked), strict=True):
        same(one, true)
    others = answers(model, [Span(context, ids(token)) for token in b"ABCD"])
    assert len(server.posted()) == 1 + len(unlikely) + 1
    assert {int(one.ranks[0]) for one in others} <= {0, -2}


def test_a_true_and_a_silly_ending_are_asked_and_which_is_likelier_is_said(
    vllm: ServerModel,
) -> None:
    asked, text = plausible(vllm), b"The capital of France is"
    sums = [
        sum(
            log_probabilities([*text, *ending[:place]])[ending[place]]
            for place in range(len(ending))
        )
        for ending in (b" Paris", b" banana")
    ]
    assert (asked.true, asked.silly) == pytest.approx(sums, abs=1e-4)
    assert plausible(HASH).text == asked.text
    for ability, reason in (
        (TOP_ONLY, "not longer continuations"),
        (CHAT_ONLY, "returns no log-probabilities"),
    ):
        with served(ability, tokenizer="bytes" if ability.completions else None) as model:
            answer = plausible(model)
        assert answer.true is None
        assert reason in answer.text
    said = Plausible(true=-1.0, silly=-9.0).text
    assert "' Paris' has -1.00 nats" in said
    assert "' banana' -9.00: the true" in said
    assert "at most -9.00: the true" in Plausible(true=-1.0, silly=-9.0, silly_at_most=True).text
    assert (
        "one is more likely"
        in Plausible(true=-5.0, silly=-5.0, true_at_most=True, silly_at_most=True).text
    )
    doubted = Plausible(true=-9.0, silly=-1.0).text
    assert "is not more likely" in doubted
    assert "Doubt the model" in doubted


CONTEXT = ids(256, *b"Where does it live? Answer:")
QUESTIONS: list[Prompt] = [
    Span(CONTEXT, ids(*b" a")),
    Span(CONTEXT, ids(*b" the sea, in which there are many fish, and ships too")),
    *(Span(CONTEXT, ids(token)) for token in b"ABCD"),
]


@pytest.fixture(
    scope="module", params=[VLLM, LLAMA_CPP, TOP_ONLY], ids=lambda ability: ability.name
)
def served_both(request: pytest.FixtureRequest) -> Iterator[tuple[Server, ServerModel]]:
    with serving(request.param) as server:
        model = model_at(server, timeout=5.0, patience=0.5)
        assert model.chosen.score is not None
        yield server, model


@pytest.mark.parametrize("name", ANSWER_FAULTS)
def test_a_wrong_answer_is_never_a_score(
    name: str, served_both: tuple[Server, ServerModel]
) -> None:
    """Half of the answers are right; "all equal" numbers of one next token alone can't be told from true ones."""
    server, model = served_both
    server.next(*[None, ANSWER_FAULTS[name]] * 50)
    try:
        given = dict(model.answer(QUESTIONS))
    except ServerFailed:
        return  # nothing is scored
    finally:
        server._next.clear()
    assert len(given) == len(QUESTIONS)
    for index, true in HASH.answer(QUESTIONS):
        answer = given[index]
        if answer.missing is not None:
            assert np.isnan(answer.logprobs).all()
            assert answer.missing
        elif answer.at_most:
            assert answer.logprobs[0] >= true.logprobs[0] - 1e-6 or name in ("all 0.0", "all equal")
        elif name not in ("all equal", "all 0.0"):
            np.testing.assert_allclose(answer.logprobs, true.logprobs, atol=2e-6)


@pytest.mark.parametrize(
    "name", ["all 0.0", "all equal", "positive", "-9999", "NaN", "empty lists", "lists of null"]
)
def test_a_server_that_always_answers_so_is_refused(name: str, server: Server) -> None:
    """No way of asking about spans is left, and each says why."""
    model = model_at(server, timeout=5.0, patience=0.5)
    server.when(lambda request: request.path == "/v1/completions", ANSWER_FAULTS[name])
    assert model.chosen.score is None
    assert any(trial.refused for trial in model.selfcheck.trials)


@pytest.mark.parametrize("value", [0.5, math.nan, -math.inf, -9999.0, None, "-1.5", True, [-1.5]])
def test_what_is_no_log_probability(value: object) -> None:
    with pytest.raises(Unanswerable):
        fields.number(value)
    assert [fields.number(true) for true in (-1.5, 0, 5e-7, -3)] == [-1.5, 0.0, 0.0, -3.0]


def test_an_answer_has_one_choice_with_index_0_or_is_none() -> None:
    first, second = {"index": 0, "text": "a"}, {"index": 1, "text": "b"}
    assert fields.choice({"choices": [first]}) == first
    wrong: list[Any] = [
        [],
        [second],
        [second, first],
        [first, first],
        [{"index": False}],
        [{}],
        [None],
        None,
    ]
    for choices in wrong:
        with pytest.raises(Unanswerable):
            fields.choice({"choices": choices})


def test_another_number_of_tokens_than_was_sent_is_no_answer() -> None:
    fields.check_prompt({"usage": {"prompt_tokens": 5}}, 5)
    fields.check_prompt({}, 5)
    for read, reason in ((6, "an added BOS"), (4, "read 4 tokens, but 5 were sent")):
        with pytest.raises(Unanswerable, match=reason):
            fields.check_prompt({"usage": {"prompt_tokens": read}}, 5)


def test_a_bound_is_the_lesser_of_two() -> None:
    assert bound([math.log(0.5), math.log(0.3)]) == pytest.approx(math.log(0.2), abs=1e-4)
    assert bound([math.log(0.5), math.log(0.01)]) == pytest.approx(math.log(0.01), abs=1e-4)
    assert bound([-1e-9]) <= math.log(1e-5)
    for listed in ({b"a": 0.0, b"b": 0.0}, {}):
        with pytest.raises(Unanswerable):
            check_listed(listed)


def test_a_token_that_was_not_asked_for_is_no_answer(server: Server) -> None:
    def renamed(answer: JSON) -> JSON:
        logprobs = answer["choices"][0]["logprobs"]
        logprobs["top_logprobs"] = [
            {f"{name}0": value for name, value in logprobs["top_logprobs"][0].items()}
        ]
        return answer

    model = model_at(server)
    assert model.chosen.score is not None
    server.next(Fault(answer=renamed))
    given = dict(model.answer([Span(CONTEXT, ids(97)), Span(ids(*CONTEXT, 97), ids(98))]))
    assert sorted(answer.missing is None for answer in given.values()) == [False, True]
    (missing,) = (answer.missing for answer in given.values() if answer.missing)
    assert missing == Gist("sent no log")


MODEL = ServedModel(
    "hash", VLLM
)  # the server of the tests, which tells the truth where it does not misbehave


def test_a_chat_names_the_likeliest_tokens() -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 3,
    }
    answer = MODEL.answer("POST", "/v1/chat/completions", body | {"temperature": 0})
    (entry,) = answer["choices"][0]["logprobs"]["content"]
    row = log_probabilities([BOS, *b"<|user|>hi\n<|assistant|>"])
    assert entry["logprob"] == max(row) == entry["top_logprobs"][0]["logprob"]
    assert len(entry["top_logprobs"]) == 3


@pytest.mark.parametrize("name", ANSWER_FAULTS)
def test_every_fault_changes_the_answer(name: str) -> None:
    body = {
        "prompt": ["abc", "abd"],
        "echo": True,
        "max_tokens": 1,
        "logprobs": 2,
        "prompt_logprobs": 1,
    }
    answer = MODEL.answer("POST", "/v1/completions", body | {"temperature": 0})
    change = ANSWER_FAULTS[name].answer
    assert change is not None
    assert change(answer) != answer
