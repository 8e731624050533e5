"""The sanity line of ``choicewise check``: a true ending against a silly one."""

from __future__ import annotations

import pytest

from choicewise.models.fake import HashModel
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.server_model import ServerModel
from choicewise.running.work import Plausible, plausible
from tests.helpers.misbehaving_server import serving
from tests.helpers.served_model import CHAT_ONLY, TOP_ONLY, VLLM, log_probabilities

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_both_endings_are_asked() -> None:
    with serving(VLLM) as server:
        asked = plausible(ServerModel(ServerAddress.parse(server.address), tokenizer="bytes"))
    text = b"The capital of France is"
    sums = [
        sum(log_probabilities([*text, *ending[:place]])[ending[place]] for place in range(len(ending)))
        for ending in (b" Paris", b" banana")
    ]
    assert asked.true is not None
    assert asked.silly is not None
    assert abs(asked.true - sums[0]) < 1e-4
    assert abs(asked.silly - sums[1]) < 1e-4
    assert plausible(HashModel()).text == asked.text


def test_why_it_is_not_known() -> None:
    for ability, reason in ((TOP_ONLY, "a continuation has several"), (CHAT_ONLY, "gives no log-probabilities")):
        with serving(ability) as server:
            tokenizer = "bytes" if ability.completions else None
            answer = plausible(ServerModel(ServerAddress.parse(server.address), tokenizer=tokenizer))
        assert answer.true is None
        assert reason in answer.text


def test_words() -> None:
    said = "' Paris' has -1.00 nats and ' banana' -9.00: the true ending is likelier"
    assert Plausible(-1.0, -9.0).text.endswith(said)
    assert "at most -9.00: the true ending is likelier" in Plausible(-1.0, -9.0, silly_at_most=True).text
    assert "which is likelier is not known" in Plausible(-5.0, -5.0, True, True).text
    assert "doubt the model" in Plausible(-9.0, -1.0).text
