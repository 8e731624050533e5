"""The probability of a set of tokens: the plain path against arithmetic, every rung and fake against the plain path."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.engine import FIRST_SET, build
from choicewise.errors import ModelError
from choicewise.models.fake import AntiOracle, HashModel, Oracle
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.local_model import answer_tokens
from choicewise.models.local.paths import LADDER, rungs
from choicewise.questions import Generation, Ids, Mass, Span, TokenSet
from choicewise.tokens.boundary import without
from tests.helpers.answers import assert_same_scores, ids, in_order
from tests.helpers.tiny_models import VOCABULARY, network

IDS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6).map(lambda tokens: ids(*tokens))
SETS = st.sets(st.integers(0, VOCABULARY - 1), min_size=1, max_size=VOCABULARY).map(lambda some: TokenSet(sorted(some)))


@pytest.fixture(scope="module")
def lm() -> CausalLM:
    return network("llama")


@given(context=IDS, members=SETS)
@settings(max_examples=20)
def test_plain_mass_is_the_log_of_a_sum(lm: CausalLM, context: Ids, members: TokenSet) -> None:
    with torch.inference_mode():
        logits = lm.model(torch.from_numpy(context.astype(np.int64))[None]).logits[0, -1].double().numpy()
    weights = np.exp(logits - logits.max())
    seen = plain.score(lm.model, VOCABULARY, Mass(context, members))
    assert np.exp(seen.logprobs.astype(float)) == pytest.approx([weights[members.ids].sum() / weights.sum()], rel=1e-4)
    likeliest = members.ids[logits[members.ids].argmax()]
    assert (seen.tokens.tolist(), seen.ranks.tolist()) == ([likeliest], [(logits > logits[likeliest]).sum()])


@pytest.mark.parametrize("rung", [name for name in rungs("cpu") if name != "plain"])
@given(asked=st.lists(st.tuples(IDS, SETS | IDS), min_size=1, max_size=8))
@settings(max_examples=5)
def test_every_rung_reads_masses_and_spans_from_one_tree(lm: CausalLM, rung: str, asked: list) -> None:
    questions = [Mass(one, two) if isinstance(two, TokenSet) else Span(one, two) for one, two in asked]
    generation = Generation(asked[0][0], 2)
    answers = in_order(answer_tokens(LADDER[rung](lm, 7), [*questions, generation], (), []))
    truth = [plain.score(lm.model, VOCABULARY, question) for question in questions]
    assert_same_scores(answers, [*truth, plain.generate(lm.model, VOCABULARY, generation, ())], atol=1e-4)


def test_a_mass_is_one_more_row_to_read_and_no_more_to_compute() -> None:
    span = Span(ids(1, 2), ids(3, 4))
    every = TokenSet(range(9))
    tree = build([span, Mass(ids(1, 2), every), Mass(ids(1, 2), TokenSet([5])), Mass(ids(1, 2), TokenSet(range(9)))])
    assert tree.tokens.tolist() == build([span]).tokens.tolist() == [1, 2, 3]
    assert len(tree.sets) == 2
    assert sorted(tree.targets.tolist()) == [FIRST_SET - 1, FIRST_SET, 3, 4]
    assert tree.span_of[1] == tree.span_of[3]


def test_token_sets_are_what_they_hold() -> None:
    assert TokenSet([3, 1, 3]).ids.tolist() == [1, 3]
    assert TokenSet([3, 1]).digest == TokenSet([1, 3]).digest != TokenSet([1]).digest
    context, longer = ids(1, 2), ids(1, 2, 3)
    keys = {Mass(tokens, TokenSet(members)).key for tokens in (context, longer) for members in ([1], [2], [1, 2])}
    assert len(keys) == 6
    assert Mass(context, TokenSet([1])).key != Span(context, ids(1)).key
    assert without(Mass(longer, TokenSet([1])), 1).context.tolist() == [2, 3]
    assert (Mass(longer, TokenSet([1])).inputs, without(Span(longer, ids(1)), 2).inputs) == (3, 1)


def test_members_that_the_model_does_not_know_have_no_probability(lm: CausalLM) -> None:
    few = plain.score(lm.model, VOCABULARY, Mass(ids(1), TokenSet([5, 6])))
    more = plain.score(lm.model, VOCABULARY, Mass(ids(1), TokenSet([5, 6, VOCABULARY, 999])))
    assert few.logprobs.tolist() == more.logprobs.tolist()
    assert TokenSet([5, VOCABULARY]).known(VOCABULARY).tolist() == [5]
    with pytest.raises(ModelError, match="belongs to another model"):
        TokenSet([VOCABULARY]).known(VOCABULARY)


@given(context=IDS, members=SETS)
def test_the_hash_model_adds_its_tokens_up(context: Ids, members: TokenSet) -> None:
    spans = [Span(context, members.ids[place : place + 1]) for place in range(len(members.ids))]
    seen = dict(HashModel().answer([Mass(context, members), *spans]))
    parts = [float(np.exp(seen[place + 1].logprobs[0], dtype=np.float64)) for place in range(len(spans))]
    assert float(np.exp(seen[0].logprobs[0], dtype=np.float64)) == pytest.approx(sum(parts), rel=1e-5)
    assert seen[0].ranks[0] == min(int(seen[place + 1].ranks[0]) for place in range(len(spans)))


def test_the_oracles_know_which_mass_belongs_to_a_right_choice() -> None:
    questions = [Mass(ids(1), TokenSet([2]), gold) for gold in (True, None, False)]
    for model, sign in ((Oracle(), 1), (AntiOracle(), -1)):
        right, unknown, wrong = (seen.logprobs[0] for _, seen in model.answer(questions))
        assert sign * right > sign * wrong
        assert min(right, wrong) < unknown < max(right, wrong)
