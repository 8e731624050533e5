"""A model behind a server has the answers that it has here, however the server has to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.http import Client
from choicewise.models.server.server_model import WINDOW, ServerModel
from choicewise.questions import (
    CAUSAL_KINDS,
    Cosine,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Question,
    Sampling,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.running.evaluate import evaluate
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.served_model import (
    CHAT_ONLY,
    LLAMA_CPP,
    LLAMA_CPP_WITHOUT_BOS,
    TOP_ONLY,
    VLLM,
    Ability,
)

pytestmark = pytest.mark.usefixtures("no_pauses")

WITHOUT_CHOICE = replace(VLLM, token_choice=False, prompt_logprobs=True)
"""An older vLLM."""

ECHO = replace(VLLM, name="", token_choice=False, prompt_logprobs=False, token_names=False, tokenize=False)
"""OpenAI's protocol with an echo of tokens, and no more."""

HASH = HashModel()


def ids(*tokens: int) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def model_at(server: Server, tokenizer: str | None = "bytes") -> ServerModel:
    address = ServerAddress.parse(server.address)
    return ServerModel(address, tokenizer=tokenizer, client=Client(address, None, patience=2.0))


@contextmanager
def served(ability: Ability = VLLM) -> Iterator[ServerModel]:
    with serving(ability) as server:
        yield model_at(server)


def answers(model: ServerModel | HashModel, questions: list[Question]) -> list[TokenScores]:
    of = dict(model.answer(questions))
    return [of[index] for index in range(len(questions))]


def same(given: TokenScores, true: TokenScores) -> None:
    """The same tokens and log-probabilities, and what is said of the ranks is so."""
    assert given.missing is None
    assert not given.at_most
    assert given.tokens.tolist() == true.tokens.tolist()
    np.testing.assert_allclose(given.logprobs, true.logprobs, atol=2e-6)
    for said, rank in zip(given.ranks.tolist(), true.ranks.tolist(), strict=True):
        assert rank <= said <= rank + 2 if said >= 0 else rank >= -1 - said  # vLLM counts equals as likelier


@pytest.fixture(scope="module")
def vllm() -> Iterator[ServerModel]:
    with served(VLLM) as model:
        yield model


TEXTS = st.lists(st.sampled_from(b"ab \n"), min_size=1, max_size=40).map(lambda tokens: ids(256, *tokens))
ENDS = st.lists(st.sampled_from(b"abc"), min_size=1, max_size=30).map(lambda tokens: ids(*tokens))
SPANS = st.lists(st.builds(Span, TEXTS, ENDS), min_size=1, max_size=12)


@pytest.mark.costly("servers and boards on loopback")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=SPANS, members=st.sets(st.integers(0, 256), min_size=1, max_size=200))
def test_a_tree_of_spans_and_masses_has_the_models_own_answers(
    vllm: ServerModel, spans: list[Span], members: set[int]
) -> None:
    asked: list[Question] = [*spans, *(Mass(span.context, TokenSet(sorted(members))) for span in spans[:2])]
    for given_, true in zip(answers(vllm, asked), answers(HASH, asked), strict=True):
        same(given_, true)


@pytest.mark.parametrize(
    "ability", [WITHOUT_CHOICE, ECHO, LLAMA_CPP], ids=["older vLLM", "echo of tokens", "llama.cpp"]
)
def test_other_ways_give_the_same(ability: Ability) -> None:
    context = ids(256, *b"Where? Answer:")
    spans = [Span(context, ids(*end)) for end in (b" a", b" a tree", b" the sea", b" a", b" a tree and a pond")]
    with served(ability) as model:
        assert Span in model.supports
        for given_, true in zip(answers(model, [*spans]), answers(HASH, [*spans]), strict=True):
            same(given_, true)


def test_every_prefix_is_asked_once_in_depth_first_order() -> None:
    context = ids(256, *b"Where does it live, in a tree or in the sea?")
    with serving(VLLM) as server:
        model = model_at(server)
        assert model.chosen.score is not None
        before = len(server.posted())
        answers(model, [Span(context, ids(*end)) for end in (b"bb", b"ab", b"aa", b"ab")])
        bodies = server.posted()[before:]
    prompts = [tuple(body["prompt"]) for body in bodies]
    start = tuple(context.tolist())
    assert sorted(prompts) == [start, (*start, *b"a"), (*start, *b"b")]
    assert {prompt: body["logprob_token_ids"] for prompt, body in zip(prompts, bodies, strict=True)} == {
        start: [*b"ab"],
        (*start, *b"a"): [*b"ab"],
        (*start, *b"b"): [*b"b"],
    }


def test_long_continuations_are_asked_whole() -> None:
    context, long = ids(256, *b"Where?"), ids(*b"in the tree by the sea, where it lives")
    with serving(VLLM) as server:
        model = model_at(server)
        asked: list[Question] = [Span(context, long), Span(context, ids(*b"\n"))]
        assert model.chosen.score is not None
        before = len(server.posted())
        for given_, true in zip(answers(model, asked), answers(HASH, asked), strict=True):
            same(given_, true)
        kinds = ["prompt_logprobs" in body for body in server.posted()[before:]]
    assert sorted(kinds) == [False, True]


@pytest.mark.costly("servers and boards on loopback")
def test_the_window_is_what_fits_with_a_generated_token() -> None:
    with served(VLLM) as model:
        assert model.window == VLLM.window - 1
        longest = Span(np.full(VLLM.window - 1, 97, dtype=np.int32), ids(98))
        same(answers(model, [longest])[0], answers(HASH, [longest])[0])
    with served(WITHOUT_CHOICE) as model:
        assert model.window == VLLM.window - 2
        longest = Span(np.full(VLLM.window - 2, 97, dtype=np.int32), ids(98))
        same(answers(model, [longest])[0], answers(HASH, [longest])[0])
    with served(TOP_ONLY) as model:
        model.chosen  # noqa: B018
        assert model.window == WINDOW - 1  # it does not say how many
    with serving(VLLM) as server, pytest.raises(ModelError, match=r"is served with 4096 tokens.* takes 4095; serve"):
        ServerModel(ServerAddress.parse(server.address), tokenizer="bytes", window=5000)
    with serving(WITHOUT_CHOICE) as server:
        model = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes", window=VLLM.window - 1)
        with pytest.raises(ModelError, match=r"so that it takes 4094; serve it with more, or name a window of at most"):
            assert model.window


@pytest.mark.costly("servers and boards on loopback")
@pytest.mark.parametrize(
    ("ability", "more"), [(VLLM, 1), (WITHOUT_CHOICE, 2), (ECHO, 2)], ids=["chosen", "prompts", "echo"]
)
@pytest.mark.parametrize("named", [True, False])
def test_prompts_that_are_cut_are_those_of_a_model_here(
    ability: Ability, more: int, named: bool, tmp_path: Path
) -> None:
    """At the same window, token by token: it is named for the server, or is what it takes."""
    here = HashModel()
    here.window = 150
    wide = replace(ability, name="vllm", window=here.window + (10 if named else more))
    asked = {"data": "bundled:merrowick", "protocols": ["mmlu/cloze:sum@fit=cut-start"], "limit": 2}
    with serving(wide) as server:
        address = ServerAddress.parse(server.address)
        model = ServerModel(address, tokenizer="bytes", window=here.window if named else None)
        assert model.window == here.window
        there = evaluate(model=model, out=tmp_path / "there", **asked)
    runs = there, evaluate(model=here, out=tmp_path / "here", **asked)
    given_, true = (run.observations() for run in runs)
    assert given_.num_rows == true.num_rows > 0
    for column in ("key", "context_tokens", "tokens_dropped", "tokens"):  # the key is that of all tokens
        assert given_[column].to_pylist() == true[column].to_pylist(), column
    assert max(given_["tokens_dropped"].to_pylist()) > 0


def test_an_echo_that_is_off_by_one_is_found_and_named() -> None:
    with served(LLAMA_CPP_WITHOUT_BOS) as model:
        trials = {trial.rung: trial.refused for trial in model.selfcheck.trials}
        assert "wrong row" in (trials["echo, prompts as texts"] or "")
        assert model.selfcheck.rung == "top 100 next tokens, prompts as texts"
        span = Span(ids(*b"Where?"), ids(*b"ab"))
        assert model.objection(span) is not None
        assert "a continuation has several" in str(model.objection(span))
        assert "a continuation has several" in str(answers(model, [span])[0].missing)


def test_what_is_not_listed_gets_a_bound_that_holds() -> None:
    context = ids(256, *b"Where?")
    spans: list[Question] = [Span(context, ids(token)) for token in range(32, 127)]
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


@pytest.mark.costly("servers and boards on loopback")
def test_generations_are_those_of_the_model() -> None:
    context = ids(256, *b"Where?")
    (full,) = answers(HASH, [Generation(context, 12)])
    stop = full.tokens[5:7].astype(np.uint8).tobytes()
    asked: list[Question] = [
        Generation(context, 12),
        Generation(context, 12, (stop,)),
        Generation(context, 12, (stop,), keep_stop=True),
    ]
    with served(VLLM) as model:
        for given_, true in zip(answers(model, asked), answers(HASH, asked), strict=True):
            same(given_, true)


def test_samples_follow_their_streams() -> None:
    context = ids(256, *b"Where?")
    samples: list[Question] = [Generation(context, 6, sampling=Sampling.of(1, "item", n)) for n in (1, 2, 1)]
    with serving(VLLM) as server:
        model = model_at(server)
        first, other, again = answers(model, samples)
        seeds = [body["seed"] for body in server.posted() if "seed" in body]
    assert first.tokens.tolist() == again.tokens.tolist() != other.tokens.tolist()
    assert len(set(seeds)) == 2
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_chat_server_without_log_probabilities_generates() -> None:
    with served(CHAT_ONLY) as model:
        assert model.supports == {Generation, Sampling}
        assert model.tokenizer.chat is not None
        from choicewise.tokens.chat_template import Message

        text = model.tokenizer.chat.render([Message("system", "Be brief."), Message("user", 'A "question"?\n')])
        generation = Generation(model.tokenizer.encode([text], special=False)[0], 8)
        (answer,) = answers(model, [generation])
        assert answer.text
        assert not len(answer.tokens)
        (plain,) = answers(model, [Generation(ids(*b"Where?"), 8)])
        assert "ask it as a chat" in str(plain.missing)


def test_what_no_server_tells_is_not_supported(vllm: ServerModel) -> None:
    assert CAUSAL_KINDS - vllm.supports == {MaskedLoss, Cosine}


def test_other_tokens_than_the_servers_are_refused() -> None:
    with serving(VLLM) as server:
        model = model_at(server, "bundled:merrow-bpe-512")
        with pytest.raises(ModelError, match="merrow-bpe-512 is not the server's"):
            assert model.supports


def test_a_bos_that_is_there_twice_is_found() -> None:
    with (
        served(replace(VLLM, bos_always=True, tokenize=False)) as model,
        pytest.raises(ModelError, match="tokens differ"),
    ):
        assert model.supports
    with served(replace(VLLM, bos_always=True)) as model:
        trials = {trial.rung: trial.refused for trial in model.selfcheck.trials}
        assert "an added BOS?" in str(trials["next tokens, prompts as tokens"])
        assert "[256, 256] before every text" in str(model.objection(Span(ids(256, *b"Where?"), ids(97))))


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_noise_of_answers_is_measured(noise: float) -> None:
    with serving(VLLM) as server:
        server.model.noise = noise
        model = model_at(server)
        assert (model.selfcheck.noise > 0.001) == (noise > 0)
        assert model.selfcheck.noise <= 0.1


@pytest.mark.costly("servers and boards on loopback")
def test_the_identity_is_the_model_not_the_address() -> None:
    with served(VLLM) as one, served(VLLM) as other, served(WITHOUT_CHOICE) as third:
        assert one.digest == other.digest != third.digest
        assert one.record.probes == other.record.probes
        assert one.probe_now() == dict(one.record.probes)
        assert one.record.software == "vllm 0.32.0"


def test_a_model_that_is_not_served_is_named() -> None:
    with serving(VLLM) as server:
        url = server.url
        with pytest.raises(ModelError, match="serves no model 'hush'; did you mean hash"):
            ServerModel(ServerAddress.parse(f"server:{url}#hush"), tokenizer="bytes")
        assert ServerModel(ServerAddress.parse(f"server:{url}"), tokenizer="bytes").name == "hash"
        with pytest.raises(ModelError, match="name the tokenizer"):
            ServerModel(ServerAddress.parse(f"server:{url}"))


def test_unlikely_tokens_get_their_ranks_from_a_prompt_of_their_own_where_ranks_matter() -> None:
    context = ids(256, *b"Where?")
    asked: list[Question] = [Span(context, ids(token), ranked=True) for token in b"ABCD"]
    with serving(VLLM) as server:
        model = model_at(server)
        assert model.chosen.score is not None
        before = len(server.posted())
        given_ = answers(model, asked)
        unlikely = [one for one in given_ if one.logprobs[0] < np.log(0.01)]
        assert unlikely
        assert all(one.ranks[0] >= 0 for one in unlikely)
        assert len(server.posted()) == before + 1 + len(unlikely)
        for one, true in zip(given_, answers(HASH, asked), strict=True):
            same(one, true)
        before = len(server.posted())
        others = answers(model, [Span(context, ids(token)) for token in b"ABCD"])
        assert len(server.posted()) == before + 1
    assert {int(one.ranks[0]) for one in others} <= {0, -2}


def test_more_tokens_than_a_server_lists_at_once_are_asked_in_several_requests(vllm: ServerModel) -> None:
    """vLLM refuses more than its --max-logprobs, 20 by default."""
    questions = [Span(ids(256, 97), ids(token)) for token in range(50)] + [Mass(ids(256, 97), TokenSet(range(50)))]
    given_, true = dict(vllm.answer(questions)), dict(HashModel().answer(questions))
    for index, one in true.items():
        same(given_[index], one)
