"""vLLM asked by a fake engine that cuts, refuses and forgets as the real one does: every answer is the true one or is
refused, the tokens computed are those that the rule says, and what an engine that dies has answered stays."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server.faults import Unanswerable
from choicewise.extensions.endpoints.server.routes import Part
from choicewise.extensions.endpoints.vllm import vllm_routes
from choicewise.extensions.endpoints.vllm.engine_model import AT_ONCE, EngineModel
from choicewise.extensions.endpoints.vllm.engine_name import EngineName
from choicewise.extensions.endpoints.vllm.process import EngineDied, EngineProcess
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    MOST_MEMBERS,
    PLACES,
    PROMPTS,
    ROWS,
    TRACE,
    Abilities,
    EngineRequest,
    EngineRoute,
    Output,
    cost,
    hit,
    label_request,
    objection,
    prompt_request,
    rows_request,
    trace_request,
    way_of,
)
from choicewise.models.load import load_model
from choicewise.questions import (
    EOS,
    LENGTH,
    STOP,
    Generation,
    MaskedLoss,
    Mass,
    Prompt,
    Span,
    TokenScores,
    TokenSet,
)
from tests.helpers.answers import ids
from tests.helpers.fake_engine import WAYS, FakeEngine, logprobs, true_scores
from tests.helpers.messages import Gist

V, PART = 300, [Part(0)]
FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=20).map(lambda tokens: ids(*tokens))
SPANS = st.lists(st.builds(Span, TOKENS, TOKENS, ranked=st.booleans()), min_size=1, max_size=8)


def model(window: int = 100, **engine: Any) -> EngineModel:
    """The bundled folder's tokenizer with the fake engine."""
    return EngineModel(FOLDER, window=window, engine=partial(FakeEngine, **engine))


def same(answer: TokenScores, true: TokenScores, ranked: bool = True) -> bool:
    """Whether log-probabilities are equal, and ranks as far as they are said."""
    known = answer.ranks >= 0
    return (
        answer.missing is None
        and answer.tokens.tolist() == true.tokens.tolist()
        and np.allclose(answer.logprobs, true.logprobs, atol=1e-6)
        and answer.ranks[known].tolist() == true.ranks[known].tolist()
        and (not ranked or bool(((answer.ranks >= 0) | (answer.logprobs > np.log(0.01))).all()))
    )


@pytest.mark.costly("the self-check of every example asks in four ways")
@given(
    spans=SPANS,
    ways=st.sampled_from([WAYS, (ROWS, PLACES, PROMPTS), (PLACES, PROMPTS)]),
    block=st.sampled_from([4, 8]),
)
def test_every_way_gives_the_true_numbers(
    spans: list[Span], ways: tuple[str, ...], block: int
) -> None:
    asked = model(ways=ways, block=block)
    for _ in range(
        2
    ):  # the second time everything is in the cache, where prompt rows have no answer
        answers = dict(asked.answer(spans))
        assert len(answers) == len(spans)
        for index, answer in answers.items():
            whole = PROMPTS if len(spans[index].continuation) > 1 else PLACES
            ranked = spans[index].ranked and way_of(spans[index], asked.abilities) in (TRACE, whole)
            assert same(answer, true_scores(spans[index], V), ranked)


def test_the_way_is_the_one_that_computes_least() -> None:
    abilities = Abilities(WAYS, 16, 1000, V)
    for context, count in ((1, 1), (33, 2), (100, 7), (128, 30)):
        span = Span(ids(*[1] * context), ids(*[2] * count))
        least = min(cost(way, context, count, 16) for way in WAYS)
        assert cost(way_of(span, abilities), context, count, 16) == least
    assert way_of(Span(ids(*[1] * 10), ids(2, 3)), abilities) == TRACE
    without = abilities._replace(ways=(PLACES, PROMPTS))
    assert (
        way_of(Span(ids(*[1] * 500), ids(2, 3)), without) == PLACES
    )  # 500 tokens anew, or two ends of a block
    assert way_of(Span(ids(*[1] * 10), ids(*[2] * 30)), without) == PROMPTS
    tight = Span(ids(*[1] * 10), ids(*[2] * 30))
    assert (
        way_of(tight, without._replace(longest=40)) == PLACES
    )  # a prompt leaves no room for a generated token


@given(
    context=st.integers(1, 70),
    counts=st.lists(st.integers(2, 9), min_size=1, max_size=5),
    block=st.integers(1, 32),
)
def test_what_is_computed_is_what_the_rule_says(
    context: int, counts: list[int], block: int
) -> None:
    """Of a cache that has the context: the first option computes all of it, the others the rest of a block."""
    engine = FakeEngine({"max_model_len": 100}, block=block)
    spans = [
        Span(ids(*[1] * context), ids(index + 2, *[2] * (count - 1)))
        for index, count in enumerate(counts)
    ]
    route = EngineRoute(engine.abilities)
    requests = list(route.requests([*enumerate(spans)]))
    outputs = [
        vllm_routes.output_of(engine.generate(each.prompt, each.params)) for each in requests
    ]
    spent = sum(output.computed for output in outputs)
    assert spent == hit(context, block) + sum(
        cost(TRACE, context, count, block) for count in counts
    )


def test_options_of_a_context_stand_together_in_the_order_of_the_tree() -> None:
    spans = [
        Span(ids(*context), ids(*option))
        for option in ((5, 6), (7,), (8, 9))
        for context in ((1, 2), (3,), (1,))
    ]
    requests = list(EngineRoute(Abilities(WAYS, 16, 100, V)).requests([*enumerate(spans)]))
    prompts = [tuple(each.prompt) for each in requests]
    assert prompts == sorted(prompts)
    assert sorted(part.question for each in requests for part in each.parts) == list(
        range(len(spans))
    )


def test_label_ids_of_one_request_and_of_a_large_set() -> None:
    """129 ids are two requests; the ranks that vLLM gives them are places in a list and are dropped."""
    asked = model()
    context = ids(9, 8, 7)
    row = logprobs([9, 8, 7], V)
    spans: list[Prompt] = [Span(context, ids(token)) for token in range(129)]
    members = TokenSet(range(5, 290))
    answers = dict(asked.answer([*spans, Mass(context, members)]))
    for token in range(129):
        assert answers[token].logprobs[0] == pytest.approx(row[token], abs=1e-6)
        assert (answers[token].ranks[0] == 0) == (token == row.argmax())
    inside = row[5:290].astype(np.float64)
    assert answers[129].logprobs[0] == pytest.approx(np.log(np.exp(inside).sum()), abs=1e-5)
    assert answers[129].tokens.tolist() == [5 + int(inside.argmax())]


def test_losses_and_generations() -> None:
    asked = model()
    span = Span(ids(4, 5), ids(6, 7, 8))
    texts = [
        Generation(ids(4, 5), 30),
        Generation(ids(4, 5), 0),
        Generation(ids(4, 5), 6, (b"\0never",)),
    ]
    answers = dict(asked.answer([MaskedLoss(span), *texts]))
    assert answers[0].value == pytest.approx(
        -true_scores(span, V).logprobs.mean(dtype=np.float64), abs=1e-6
    )
    tokens, ends = [4, 5], asked._ends
    while len(tokens) < 32 and (len(tokens) < 3 or tokens[-1] not in ends):
        tokens.append(int(logprobs(tokens, V).argmax()))
    assert answers[1].tokens.tolist() == tokens[2:]
    assert answers[1].ended is not None
    assert answers[1].ended.finish == (EOS if tokens[-1] in ends else LENGTH)
    assert set(answers[1].ranks.tolist()) == {0}
    assert answers[2].tokens.tolist() == []
    assert len(answers[3].tokens) == 6 or answers[3].ended.finish in (EOS, STOP)


def test_a_stop_ends_a_text_before_its_token() -> None:
    first = int(logprobs([4, 5], V).argmax())
    second = int(logprobs([4, 5, first], V).argmax())
    table = [b""] * V
    table[first], table[second] = b"yes", b"\n\n"
    request = vllm_routes.generation_request(Generation(ids(4, 5), 9, (b"\n",)), {1}, table, PART)
    assert (request.params["stop"], request.params["detokenize"]) == (["\n"], True)
    output = vllm_routes.output_of(
        FakeEngine({"max_model_len": 50}).generate(request.prompt, request.params)
    )
    (scores,) = request.read(output)
    assert (scores.tokens.tolist(), scores.ended.finish if scores.ended else None) == (
        [first],
        STOP,
    )


WRONG: list[tuple[str, Callable[..., EngineRequest], Callable[[Output], Output], str]] = [
    (
        "cut at 16",
        trace_request,
        lambda out: replace_(out, tokens=out.tokens[:2], logprobs=out.logprobs[:2]),
        "2 tokens",
    ),
    (
        "another token",
        trace_request,
        lambda out: replace_(out, tokens=[7, *out.tokens[1:]]),
        "token 7 at position 0",
    ),
    (
        "ended",
        trace_request,
        lambda out: replace_(out, finish="stop"),
        "continuation early \\(stop\\)",
    ),
    ("no numbers", trace_request, lambda out: replace_(out, logprobs=None), "at 0 positions"),
    (
        "other ids",
        trace_request,
        lambda out: replace_(out, logprobs=[[[9, -1.0, 1]]] * 3),
        "of token 3",
    ),
    (
        "rank 0",
        trace_request,
        lambda out: replace_(out, logprobs=[[[t, -1.0, 0]] for t in (3, 4, 5)]),
        "as the rank",
    ),
    (
        "above 0",
        trace_request,
        lambda out: replace_(out, logprobs=[[[t, 0.5, 1]] for t in (3, 4, 5)]),
        "above 0",
    ),
    (
        "NaN",
        trace_request,
        lambda out: replace_(out, logprobs=[[[t, float("nan"), 1]] for t in (3, 4, 5)]),
        "nan",
    ),
    ("another prompt", trace_request, lambda out: replace_(out, prompt=7), "read 7 tokens, but 2"),
    ("no rows", rows_request, lambda out: replace_(out, rows=None), "no prompt rows"),
    (
        "too few rows",
        rows_request,
        lambda out: replace_(out, rows=out.rows[:2]),
        "2 prompt rows .* 3",
    ),
    (
        "two columns",
        rows_request,
        lambda out: replace_(out, rows=[[-1.0, -2.0]] * 3),
        "3 prompt rows ",
    ),
    ("a padded row", rows_request, lambda out: replace_(out, rows=[[-np.inf]] * 3), "inf"),
    (
        "cached",
        prompt_request,
        lambda out: replace_(out, cached=4),
        "read 4 tokens .* cache",
    ),
    (
        "shorter",
        prompt_request,
        lambda out: replace_(out, prompts=out.prompts[1:]),
        "of 4 prompt tokens, but 5",
    ),
    (
        "absent",
        prompt_request,
        lambda out: replace_(out, prompts=None),
        "of 0 prompt tokens, but 5",
    ),
    (
        "a hole",
        prompt_request,
        lambda out: replace_(out, prompts=[None] * 5),
        "of token 3",
    ),
]


def replace_(output: Output, **changes: Any) -> Output:
    """The output with other fields."""
    return output._replace(**changes)


@pytest.mark.parametrize(
    ("make", "spoil", "reason"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG]
)
def test_what_vllm_gives_otherwise_than_asked_is_refused(
    make: Any, spoil: Any, reason: str
) -> None:
    request = make([1, 2], [3, 4, 5], PART)
    output = vllm_routes.output_of(
        FakeEngine({"max_model_len": 50}).generate(request.prompt, request.params)
    )
    (scores,) = request.read(output)
    assert same(scores, true_scores(Span(ids(1, 2), ids(3, 4, 5)), V), ranked=False)
    with pytest.raises(Unanswerable, match=reason):
        request.read(spoil(output))


def test_a_label_that_is_not_given_is_refused() -> None:
    request = label_request([1, 2], [3, 4], PART, [[3, 4]])
    output = vllm_routes.output_of(
        FakeEngine({"max_model_len": 50}).generate(request.prompt, request.params)
    )
    spoiled = [[each for each in output.logprobs[0] if each[0] != 4]]
    with pytest.raises(Unanswerable, match="no log-probability of token 4, though"):
        request.read(output._replace(logprobs=spoiled))


def test_two_equal_best_tokens_are_both_of_rank_0() -> None:
    """vLLM counts tokens that are no less likely, so that both would have rank 2."""
    request = trace_request([1], [3], PART)
    output = Output(1, 0, [3], [[[3, -0.7, 2], [9, -0.7, 2]]], finish="length")
    assert request.read(output)[0].ranks.tolist() == [0]
    assert request.read(output._replace(logprobs=[[[3, -0.8, 2], [9, -0.7, 1]]]))[
        0
    ].ranks.tolist() == [1]


def test_a_server_lists_the_forced_token_and_the_likeliest_other_one() -> None:
    """It cuts the list to as many as are asked for, so that one more is: else every token would seem the likeliest."""
    route = vllm_routes.served_trace("m", 100)
    (call,) = route.calls([(0, Span(ids(1, 2), ids(3, 4)))])
    params = call.body["sampling_params"]
    assert (call.path, call.body["model"], call.body["token_ids"]) == (
        "/inference/v1/generate",
        "m",
        [1, 2],
    )
    assert (params["trace_decode_token_ids"], params["max_tokens"], params["logprobs"]) == (
        [3, 4],
        2,
        2,
    )

    def place(*listed: tuple[int, float, int]) -> dict[str, Any]:
        entries = [
            {"token_id": token, "logprob": nats, "rank": rank} for token, nats, rank in listed
        ]
        return {**entries[0], "top_logprobs": entries}

    def answer(*content: Any) -> dict[str, Any]:
        choice = {
            "index": 0,
            "finish_reason": "length",
            "token_ids": [3, 4],
            "logprobs": {"content": [*content]},
        }
        return {"choices": [choice], "usage": {"prompt_tokens": 2}}

    first, second = place((3, -2.0, 7), (9, -1.0, 1)), place((4, -0.5, 1), (8, -3.0, 2))
    (scores,) = call.read(answer(first, second))
    assert (scores.logprobs.tolist(), scores.ranks.tolist()) == ([-2.0, -0.5], [6, 0])
    for wrong in (answer(place((3, -2.0, 7)), second), answer(first), {"choices": []}):
        with pytest.raises(Unanswerable):
            call.read(wrong)
    with pytest.raises(Unanswerable, match="a placeholder"):
        call.read(answer(first, place((4, -9999.0, 1), (8, -3.0, 2))))


BAD = [
    (Span(ids(), ids(1)), "the prompt is empty"),
    (Span(ids(1), ids()), "continuation has no token"),
    (Span(ids(1, 2), ids(V)), f"token {V} is not ... {V}"),
    (Span(ids(-1, 2), ids(1)), "token -1 is not"),
    (Span(ids(*[1] * 45), ids(*[2] * 6)), "45 tokens of context and 6 more exceed the 50"),
    (Generation(ids(*[1] * 45), 6), "exceed the 50"),
    (Mass(ids(1), TokenSet([V, V + 1])), "of 0 tokens"),
    (MaskedLoss(Span(ids(1), ids(2))), "answer a MaskedLoss"),
]


@pytest.mark.parametrize(("question", "reason"), BAD)
def test_what_can_not_be_asked_is_named_and_sent_nowhere(question: Prompt, reason: str) -> None:
    found = objection(question, Abilities(WAYS, 16, 50, V))
    assert found is not None
    assert found == Gist(reason)


def test_a_set_too_large_is_named() -> None:
    mass = Mass(ids(1), TokenSet(range(MOST_MEMBERS + 1)))
    assert f"vLLM gives {MOST_MEMBERS} at most" in (
        objection(mass, Abilities(WAYS, 16, 50, 10**6)) or ""
    )


def test_what_is_refused_alone_has_no_answer_and_the_others_do() -> None:
    asked = model(poison=299)
    spans = [Span(ids(index % 250 + 1, 2), ids(3, 4)) for index in range(40)]
    spans[17] = Span(ids(299, 2), ids(3, 4))
    answers = dict(asked.answer(spans))
    assert [index for index, answer in answers.items() if answer.missing] == [17]
    assert "vLLM refuses the request (The decoder prompt" in str(answers[17].missing)
    assert all(
        same(answers[index], true_scores(spans[index], V)) for index in answers if index != 17
    )


@pytest.mark.costly("more requests than are sent at once")
def test_an_engine_that_dies_is_asked_the_rest_again() -> None:
    said = list[str]()
    asked = EngineModel(FOLDER, window=100, engine=FakeEngine, say=said.append)
    asked.check(1)
    engine = asked._engine
    engine.dies = {engine.ended + 20, engine.ended + 21}
    spans = [
        Span(ids(index % 200 + 1, index // 200 + 1), ids(3, 4)) for index in range(2 * AT_ONCE + 10)
    ]
    answers = dict(asked.answer(spans))
    assert len(answers) == len(spans)
    assert all(
        same(answers[index], true_scores(spans[index], V)) for index in range(0, len(spans), 37)
    )
    assert sum("again, fewer at once" in line for line in said) == 2
    engine.dies = set(range(10_000))
    with pytest.raises(ModelError, match="3 times in a row: vLLM ended its process"):
        dict(asked.answer(spans[:5]))


def test_answers_are_given_as_they_end_and_others_take_their_places() -> None:
    asked = model()
    asked.check(0)
    long = [Generation(ids(4, number), 30) for number in range(5)]
    short = [Generation(ids(5, number), 1) for number in range(5)]
    order = [index for index, _ in asked.answer([*long, *short])]
    assert sorted(order) == list(range(10))
    assert min(order[:3]) >= 5
    engine = asked._engine
    spans = [Span(ids(index % 200 + 1, index // 200 + 1), ids(3)) for index in range(AT_ONCE + 50)]
    answers = asked.answer(spans)
    next(answers)
    assert engine.most_at_once == AT_ONCE
    assert len(dict(answers)) == AT_ONCE + 49


def test_answers_that_nobody_read_are_not_those_of_the_next_question() -> None:
    asked = model()
    spans = [
        Span(ids(index % 200 + 1, index // 200 + 1), ids(3, 4)) for index in range(2 * AT_ONCE)
    ]
    first = asked.answer(spans)
    next(first)
    first.close()  # requests are under way
    other = Span(ids(201, 2), ids(5, 6))
    assert same(dict(asked.answer([other]))[0], true_scores(other, V))


def test_a_way_that_is_wrong_is_not_taken() -> None:
    class Wrong(FakeEngine):
        def generate(self, prompt: list[int], params: Any) -> Any:
            result = super().generate(prompt, params)
            if "trace_decode_token_ids" in params:
                for place in result.outputs[0].logprobs:
                    for each in place.values():
                        each.logprob -= 1.0
            return result

    asked = EngineModel(FOLDER, window=100, engine=Wrong)
    check = asked.check(1)
    refused = {trial.rung: trial.refused for trial in check.trials}
    assert "prompt log-probabilities" in str(refused["vLLM, trace replay"])
    assert check.rung == "vLLM, prompt rows"
    span = Span(ids(1, 2, 3), ids(4, 5))
    assert same(dict(asked.answer([span]))[0], true_scores(span, V), ranked=False)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vllm:", "names no model"),
        ("vllm:m,logprobs_mode=processed_logprobs", "can't be set here"),
        ("vllm:m,speculative_config={}", "excludes trace replay"),
        ("vllm:m,max_logprobs=0", "must be at least 1"),
    ],
)
def test_names_that_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        EngineName.parse(name)


def test_options_of_the_engine_pass_through_by_name() -> None:
    name = EngineName.parse(
        "vllm:ORG/NAME@main,tensor_parallel_size=2,enforce_eager=True,load_format=dummy"
    )
    assert name == (
        "ORG/NAME@main",
        {"tensor_parallel_size": 2, "enforce_eager": True, "load_format": "dummy"},
    )
    asked = EngineModel(
        FOLDER, options=name.options, dtype="float32", batch_tokens=99, engine=FakeEngine
    )
    told = asked._engine.options
    assert told["tensor_parallel_size"] == 2
    assert (told["max_num_batched_tokens"], told["max_model_len"]) == (99, asked.window + 1)


@pytest.mark.parametrize("ways", [WAYS, (ROWS, PLACES, PROMPTS), (PLACES, PROMPTS)])
def test_an_engine_without_a_cache_does_not_explain_its_cost_by_one(ways: tuple[str, ...]) -> None:
    engine = partial(FakeEngine, ways=ways)
    assert "in vLLM's cache" in EngineModel(FOLDER, engine=engine).selfcheck.cost
    without = EngineModel(
        FOLDER, engine=partial(engine, block=1 << 20)
    )  # as the engine's process says it
    for depth in (0, 1):
        assert without.check(depth).cost.endswith("(enable_prefix_caching is off)")


def test_without_vllm_the_command_that_installs_it_is_named() -> None:
    with pytest.raises(ModelError, match=r"vllm is missing.*\[vllm\]"):
        load_model("vllm:bundled:merrow-byte")


def test_an_engine_that_ends_says_what_it_printed() -> None:
    process = EngineProcess({})
    assert process.limits.seconds is None
    assert list(process._arguments()) == ["{}"]
    with pytest.raises(
        EngineDied,
        match="vLLM ended its process; fix",
    ):
        process._give_up("ended its process")
    process._has_started = True
    with pytest.raises(EngineDied, match="vLLM ended its process; run .* resume"):
        process._give_up("ended its process")
