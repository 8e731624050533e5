"""The server of the tests tells the truth when it does not misbehave."""

import numpy as np
import pytest

from choicewise.models.fake import HashModel
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.http import Client
from choicewise.questions import Span
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.misbehaving_server import serving
from tests.helpers.served_model import BOS, LLAMA_CPP_WITHOUT_BOS, TOKENS, VLLM, Refused, ServedModel, log_probabilities
from tests.helpers.server_faults import ANSWER_FAULTS

MODEL = ServedModel("hash", VLLM)


def fake(text: str, continuation: str) -> list[float]:
    """What the fake model of the package says of the bytes of ``continuation``."""
    context, after = ByteTokenizer().encode([text, continuation], special=False)
    ((_, scores),) = HashModel().answer([Span(context, after)])
    return scores.logprobs.tolist()


def test_its_numbers_are_those_of_the_fake_model() -> None:
    row = log_probabilities([BOS, *b"one two"])
    assert len(row) == TOKENS
    assert np.exp(row).sum() == pytest.approx(1)
    assert [row[ord(" ")]] == pytest.approx(fake("one two", " "))


def test_echo_prompt_logprobs_and_chosen_tokens_agree() -> None:
    with serving() as server, Client(ServerAddress.parse(server.address)) as client:
        body = {"model": "hash", "prompt": "ab c", "echo": True, "max_tokens": 0, "logprobs": 0, "prompt_logprobs": 0}
        (choice,) = client.post("completions", body)["choices"]
        assert choice["logprobs"]["tokens"] == ["<s>", "a", "b", " ", "c"]
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(fake("", "ab c"))
        pairs = zip(b"ab c", choice["prompt_logprobs"][1:], strict=True)
        own = [entry[str(token)]["logprob"] for token, entry in pairs]
        assert own == choice["logprobs"]["token_logprobs"][1:]
        body = {"prompt": [BOS, *b"ab "], "max_tokens": 1, "logprobs": 1, "logprob_token_ids": [ord("c")]}
        (choice,) = client.post("completions", body)["choices"]
        assert choice["logprobs"]["top_logprobs"][0]["c"] == own[-1]


def test_the_echo_of_llama_cpp_without_bos_is_one_row_late() -> None:
    model = ServedModel("hash", LLAMA_CPP_WITHOUT_BOS)
    body = {"prompt": "abc", "echo": True, "max_tokens": 1, "logprobs": 1}
    lists = model.answer("POST", "/v1/completions", body)["choices"][0]["logprobs"]
    assert lists["tokens"][:3] == ["a", "b", "c"]
    assert lists["token_logprobs"][1:3] == [log_probabilities(b"ab")[ord("b")], log_probabilities(b"abc")[ord("c")]]


def test_a_chat_names_the_likeliest_tokens() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "logprobs": True, "top_logprobs": 3}
    answer = MODEL.answer("POST", "/v1/chat/completions", body | {"temperature": 0})
    (entry,) = answer["choices"][0]["logprobs"]["content"]
    row = log_probabilities([BOS, *b"<|user|>hi\n<|assistant|>"])
    assert entry["logprob"] == max(row) == entry["top_logprobs"][0]["logprob"]
    assert len(entry["top_logprobs"]) == 3


def test_it_refuses_what_real_servers_refuse() -> None:
    bodies = {"model": "none"}, {"logprobs": 21}, {"prompt": "a" * 5000}, {"logprob_token_ids": [1]}, {"prompt": ""}
    for body, status in zip(bodies, (404, 400, 400, 400, 400), strict=True):
        with pytest.raises(Refused) as refused:
            MODEL.answer("POST", "/v1/completions", {"prompt": "a", **body})
        assert refused.value.status == status


@pytest.mark.parametrize("name", ANSWER_FAULTS)
def test_every_fault_changes_the_answer(name: str) -> None:
    body = {"prompt": ["abc", "abd"], "echo": True, "max_tokens": 1, "logprobs": 2, "prompt_logprobs": 1}
    answer = MODEL.answer("POST", "/v1/completions", body | {"temperature": 0})
    change = ANSWER_FAULTS[name].answer
    assert change is not None
    assert change(answer) != answer
