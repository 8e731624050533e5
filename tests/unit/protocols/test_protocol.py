"""What a protocol refuses to be."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from choicewise.errors import ProtocolError
from tests.helpers.protocols import mmlu_protocol


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"score": "mean"}, "score is 'mean'; it must be one of sum, token_mean"),
        ({"shots": "5"}, "shots is '5'; it must be int"),
        ({"shots": True}, "shots is True; it must be int"),
        ({"limit": 1.5}, "limit is 1.5; it must be int or None"),
        ({"shots": -1}, "shots is -1; it can't be negative"),
        ({"header": "\ud800"}, "header holds a lone surrogate"),
        ({"score": "pmi"}, "score pmi with null None: the scores pmi, dc_pmi, normalised_pmi, domain_conditional need"),
        ({"null": ""}, "and only they have one"),
        ({"reading": "generate"}, "reading generate with decision argmax: generated text takes a rule"),
        ({"decision": "letter-match"}, "reading loglikelihood with decision letter-match: generated text takes a rule"),
        ({"decision": "greedy-match"}, "decision greedy-match reads the score greedy, not sum"),
        ({"reading": "generate", "decision": "letter-match"}, "letter-match with score sum: option-match scores"),
        ({"reading": "generate", "decision": "option-match", "score": "none"}, "option-match with score none"),
        ({"reading": "generate", "decision": "option-match"}, "needs new_tokens"),
        ({"score": "none"}, "reading loglikelihood has no score none"),
        ({"reading": "masked", "score": "greedy"}, "reading masked has no score greedy; it has sum, token_mean"),
        ({"reading": "embedding"}, "reading embedding has no score sum; it has none"),
        ({"reading": "noisy-channel"}, "noisy-channel needs the axis proposal, the text that names an option"),
        ({"reading": "noisy-channel", "proposal": "{choice}"}, "scores the question itself; it takes no shots"),
        ({"reading": "surprisal", "outside": "top100=-100"}, "outside top100=-100 is about the tokens of reading log"),
        ({"reading": "yes-no", "proposal": "{choice}?"}, "takes 2 to 2 different continuations, one a line"),
        ({"reading": "rating", "proposal": "{choice}?", "continuation": "1\n1"}, "2 to 20 different continuations"),
        (
            {"views": "cyclic", "calibration": "contextual"},
            "contextual needs views content-free, not cyclic",
        ),
        ({"calibration": "permutation"}, "calibration permutation needs views cyclic or full, not given"),
        ({"views": "cyclic", "continuation": "{choice}"}, "need a continuation with {letter} and without {choice}"),
        ({"calibration": "batch", "score": "token_mean"}, "are about the probabilities of fixed labels"),
        (
            {"views": "cyclic", "question": "{question}"},
            "list of options otherwise; question has no {options}",
        ),
        ({"views": "full", "choices": 5, "letters": "ABCDE"}, "orders of at most 4 choices, not 5; use cyclic"),
        ({"shot_split": None}, "5 shots need a shot_split"),
        ({"sampler": "none"}, "5 shots need a shot_split"),
        ({"sampler": "helm"}, "sampler helm draws at random and needs a seed"),
        ({"sampler": "harness-v0"}, "sampler harness-v0 draws at random and needs a seed"),
        ({"choices": 5}, "5 choices need as many letters; letters is 'ABCD'"),
    ],
)
def test_protocol_refuses_what_means_nothing(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        mmlu_protocol(**axes)
    assert message in str(caught.value)


def test_protocol_is_a_value() -> None:
    assert mmlu_protocol(shots=3) == mmlu_protocol(shots=3)
    assert len({mmlu_protocol(), mmlu_protocol(), mmlu_protocol(shots=3)}) == 2
    with pytest.raises(FrozenInstanceError):
        mmlu_protocol().shots = 3  # type: ignore[misc]


def test_protocols_that_differ_in_scoring_alone_share_their_prompts() -> None:
    asked = mmlu_protocol(continuation=" {choice}")
    scored = replace(asked, score="pmi", null="", ties="split", aggregation="macro", benchmark="other")
    assert asked.prompt_digest == scored.prompt_digest
    assert asked.digest != scored.digest
