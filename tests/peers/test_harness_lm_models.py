"""Models of many kinds under the harness: its numbers where it has any, an error that says what to do elsewhere."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer

from choicewise.bundled import MODELS
from choicewise.errors import ModelError, UsageError
from choicewise.integrations.lm_eval.model import ChoicewiseLM
from tests.helpers.tiny_models import FAMILIES, tiny
from tests.helpers.whole_text_models import ENCODER_DECODERS, save_model

from .harness_compared import SHARED, near, requests

BASE = max(MODELS)
PAIRS = [
    *(("What is it?\nAnswer:", " the frog"), ("What is it?\nAnswer:", " a"), ("What is it? ", "the frog and a dog")),
    *(("", "the heron"), ("the heron and the frog " * 30, "catch fish"), ("What is it?\nAnswer:", " the frog")),
]
TEXTS = ["the heron in the water", "", "a frog and a fish " * 60]


def both(folder: Path, **arguments: Any) -> tuple[HFLM, ChoicewiseLM]:
    """The harness's model and ours."""
    told = {"pretrained": str(folder), "dtype": "float32", "device": "cpu", **arguments}
    return HFLM(logits_cache=False, **told), ChoicewiseLM(**told)


def compare(hf: HFLM, own: ChoicewiseLM, texts: list[str] = TEXTS) -> None:
    """Their log-likelihoods are the same."""
    asked = requests("loglikelihood", PAIRS)
    answers = zip(own.loglikelihood(asked), hf.loglikelihood(asked, disable_tqdm=True), strict=True)
    for (total, greedy), (expected, also) in answers:
        assert near(total, expected)
        assert greedy == also
    asked = requests("loglikelihood_rolling", texts)
    assert all(map(near, own.loglikelihood_rolling(asked), hf.loglikelihood_rolling(asked, disable_tqdm=True)))


def compare_answers(hf: HFLM, own: ChoicewiseLM, text: str, stop: str) -> None:
    """What they write after a text and a long one is the same."""
    asked = [(each, {"max_gen_toks": 12, "until": [stop]}) for each in (text, "the frog " * 30)]
    given = requests("generate_until", asked)
    assert own.generate_until(given) == hf.generate_until(given, disable_tqdm=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def save(family: str, folder: Path, **changes: Any) -> Path:
    """A tiny model of ``family`` with the tokenizer of a bundled one."""
    return save_beside(tiny(family, vocab_size=len(AutoTokenizer.from_pretrained(BASE)), **changes), folder)


def save_beside(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BASE / name, folder)
    return folder


@pytest.mark.parametrize("family", sorted(ENCODER_DECODERS))
def test_encoder_decoders_have_the_harness_s_numbers(family: str, folders: Path) -> None:
    hf, own = both(save_model(family, folders / family), max_length=40)
    assert own.backend == hf.backend == "seq2seq"
    compare(hf, own, [text for text in TEXTS if text])
    compare_answers(hf, own, "What do the herons catch?", ".")


@pytest.mark.parametrize("family", ["gpt2", "mistral", "mamba", "gemma2", "bloom", "opt"])
def test_causal_families_have_the_harness_s_numbers(family: str, folders: Path) -> None:
    assert family in FAMILIES
    hf, own = both(save(family, folders / family))
    assert own.max_length == hf.max_length
    compare(hf, own)
    compare_answers(hf, own, "Who keeps the gate?", "e")


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")
def test_a_model_without_bos_and_eos_needs_a_prefix() -> None:
    hf, own = both(SHARED / "tiny-rwkv-4v0-660K", prefix_token_id=0, max_length=64)
    compare(hf, own)
    alone = ChoicewiseLM(pretrained=str(SHARED / "tiny-rwkv-4v0-660K"), dtype="float32", device="cpu")
    some = requests("loglikelihood", PAIRS[:2])
    assert alone.loglikelihood(some) == own.loglikelihood(some)
    for kind, text in {"loglikelihood": ("", "the heron"), "loglikelihood_rolling": "the heron"}.items():
        with pytest.raises(ModelError, match="prefix_token_id"):
            getattr(alone, kind)(requests(kind, [text]))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "pretrained is missing"),
        ({"pretrained": "fake:hash"}, "pass a model folder"),
        ({"pretrained": str(BASE), "revision": "v2"}, "has no revision v2"),
        ({"pretrained": str(BASE), "backend": "seq2seq"}, "is causal"),
        ({"pretrained": str(BASE), "parallelize": True}, "parallelize=True has no meaning"),
        ({"pretrained": str(BASE), "max_length": 4096}, "knows 1024 positions"),
        ({"pretrained": str(BASE), "dtyp": "float32"}, "did you mean dtype"),
        ({"pretrained": "nowhere/at/all"}, "no model folder"),
        ({"pretrained": str(BASE), "boundary": "mine"}, "must be one of harness"),
    ],
)
def test_arguments_that_can_t_hold_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ModelError, UsageError), match=complaint):
        ChoicewiseLM(**arguments)


def test_several_processes_are_refused_and_what_is_ignored_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"batch_size": "auto", "max_batch_size": 8, "device": "cpu"}
    ChoicewiseLM.create_from_arg_obj({"pretrained": str(BASE), "logits_cache": False}, given)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("batch_size and max_batch_size have no effect") == 1
    assert told.err.count("logits_cache has no effect") == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="one process"):
        ChoicewiseLM(pretrained=str(BASE))


def test_masked_models_and_ones_that_give_no_numbers_are_refused(folders: Path) -> None:
    with pytest.raises(ModelError, match="masked language model"):
        ChoicewiseLM(pretrained=str(save_model("bert", folders / "bert")))
    model = tiny("llama", vocab_size=2048)
    with torch.no_grad():
        model.model.embed_tokens.weight[200:] = float("nan")
    own = ChoicewiseLM(pretrained=str(save_beside(model, folders / "nan")), dtype="float32", device="cpu")
    with pytest.raises(ModelError, match="NaN"):
        own.loglikelihood(requests("loglikelihood", PAIRS))
    with pytest.raises(ModelError, match="NaN"):
        own.generate_until(requests("generate_until", [("the frog and the heron", {"max_gen_toks": 3})]))


def test_the_checkpoint_s_own_dtype_is_the_default(folders: Path) -> None:
    model = tiny("llama", vocab_size=len(AutoTokenizer.from_pretrained(BASE))).to(torch.bfloat16)
    told = {"pretrained": str(save_beside(model, folders / "bfloat16")), "device": "cpu"}
    own, hf = ChoicewiseLM(**told), HFLM(**told)
    assert str(own.get_model_info()["model_dtype"]) == str(hf.get_model_info()["model_dtype"]) == "torch.bfloat16"
    asked: list[Instance] = requests("loglikelihood", PAIRS)
    for (total, _), (expected, _) in zip(own.loglikelihood(asked), hf.loglikelihood(asked), strict=True):
        assert total == pytest.approx(expected, rel=0.05)  # theirs are rounded to three digits


def test_adapters_have_the_harness_s_numbers(folders: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(r=4, lora_alpha=32, init_lora_weights=False, target_modules="all-linear")
    torch.manual_seed(0)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(BASE), config).save_pretrained(folders / "lora")
    compare(*both(BASE, peft=str(folders / "lora")))
