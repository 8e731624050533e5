"""``choicewise lm-eval`` as a user types it, and what the harness then writes: results, samples, its cache."""

import json
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer

from choicewise import load_model, score
from choicewise.bundled import MODELS
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.interop.lm_eval import register
from choicewise.extensions.interop.lm_eval.model import ChoicewiseLM
from tests.helpers.messages import Gist
from tests.helpers.tiny_models import FAMILIES, tiny
from tests.helpers.whole_text_models import ENCODER_DECODERS, save_model

from ..harness_compared import NAMES, SHARED, near, ours, requests, theirs
from .test_harness_lm_requests import TASKS, alike
from .test_harness_lm_requests import tasks as tasks

LINE = "run --model {} --model_args pretrained={},dtype=float32 --tasks letters,stories,answers --device cpu"
LINE += " --batch_size 4"


def written_after(text: str, *settings: dict[str, Any]) -> list[Any]:
    """Requests to write on after a text, under each of the settings."""
    return requests("generate_until", [(text, each) for each in settings])


def harness(model: str, tasks: Path, *further: str) -> subprocess.CompletedProcess[str]:
    """The harness's command line through ours, in a process of its own."""
    words = LINE.format(model, MODELS[0]).split()
    line = [
        sys.executable,
        "-m",
        "choicewise",
        "lm-eval",
        *words,
        "--include_path",
        str(tasks),
        *further,
    ]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=tasks)


def written(folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The results file below ``folder``, and the samples of each task."""
    (results,) = folder.rglob("results_*.json")
    samples = {}
    for task in TASKS:
        for file in folder.rglob(f"samples_{task}_2*.jsonl"):
            samples[task] = [
                json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()
            ]
    return json.loads(results.read_text(encoding="utf-8")), samples


def numbers(value: Any) -> Any:
    """``value`` with numbers in place of the texts that the samples file has for them."""
    match value:
        case dict():
            return {key: numbers(each) for key, each in value.items()}
        case list():
            return [numbers(each) for each in value]
        case str():
            with suppress(ValueError):
                return (
                    [float(each) for each in value.strip("[]").split()]
                    if value[:1] == "["
                    else float(value)
                )
    return value


def test_a_line_gives_the_same_files_where_only_the_model_changes(
    tasks: Path, tmp_path: Path
) -> None:
    wrote, tables = {}, {}
    for model in ("hf", "choicewise"):
        done = harness(
            model,
            tasks,
            "--log_samples",
            "--output_path",
            str(tmp_path / model),
            "--bootstrap_iters",
            "10",
        )
        if done.returncode and "bootstrap_iters" in done.stderr:
            done = harness(model, tasks, "--log_samples", "--output_path", str(tmp_path / model))
        assert done.returncode == 0, done.stderr
        wrote[model] = written(tmp_path / model)
        tables[model] = done.stdout.splitlines()
    (expected, their_samples), (own, our_samples) = wrote["hf"], wrote["choicewise"]
    for part in (
        "results",
        "configs",
        "versions",
        "n-shot",
        "n-samples",
        "higher_is_better",
        "max_length",
    ):
        assert alike(own[part], expected[part]), part
    assert set(expected) == set(own)
    assert set(expected["config"]) < set(own["config"])
    assert our_samples.keys() == their_samples.keys() == {"letters", "stories", "answers"}
    assert alike(numbers(our_samples), numbers(their_samples))
    assert tables["choicewise"][0].replace("choicewise (", "hf (") == tables["hf"][0]
    assert tables["choicewise"][1:3] == tables["hf"][1:3]
    assert len(tables["choicewise"]) == len(tables["hf"])  # nothing of ours on stdout
    assert "choicewise: batch_size has no effect" in done.stderr
    assert "loglikelihood: 100 %" in done.stderr


def test_an_error_is_a_line_and_an_exit_code(tasks: Path) -> None:
    done = harness("choicewise", tasks, "--model_args", "pretrained=nowhere,dtyp=float32")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == Gist("error: ... choicewise ... 'dtyp'")
    assert "Traceback" not in done.stderr
    unknown = harness("choicewise", tasks, "--no_such_option")
    assert unknown.returncode == 2
    assert "--no_such_option" in unknown.stderr


def test_releases_that_look_for_the_model_find_it_and_the_harness_s_own_stay_known() -> None:
    declared = tomllib.loads(
        (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    path = declared["entry-points"]["lm_eval.models"]["choicewise"]
    assert EntryPoint("choicewise", path, "lm_eval.models").load() is ChoicewiseLM
    register()
    register()
    assert get_model("choicewise") is ChoicewiseLM
    assert get_model("hf").__name__ == "HFLM"
    assert get_model("dummy")


# The harness's cache (--use_cache)


def asked() -> dict[str, list[Any]]:
    pairs = [("What is it?", " the gate"), ("What is it?", " the lamp"), ("", "the gate")]
    answers = [
        ("Who?", {"max_gen_toks": 5, "until": ["."]}),
        ("What?", {"max_gen_toks": 5, "until": ["."]}),
    ]
    return {
        "loglikelihood": pairs,
        "loglikelihood_rolling": ["the gate", "the lamp"],
        "generate_until": answers,
    }


@pytest.mark.parametrize("kind", asked())
def test_cached_answers_are_the_model_s(kind: str, tmp_path: Path) -> None:
    path, own = str(tmp_path / "cache.db"), ours(NAMES[0])
    every = requests(kind, asked()[kind])
    expected = getattr(own, kind)(every)
    first = getattr(CachingLM(own, path), kind)(every[:1])
    again = CachingLM(ours(NAMES[0]), path)
    answers = getattr(again, kind)(every)
    assert answers[0] == first[0]  # to the bit: it was not computed again
    assert alike(json.loads(json.dumps(answers)), json.loads(json.dumps(expected)))
    assert len(again.dbdict) == len(every) + 1


def test_a_cache_is_filled_while_answers_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ours(NAMES[0])
    cached = CachingLM(own, str(tmp_path / "cache.db"))
    real = own._engine.model.answer

    def interrupted(questions: Any) -> Any:
        answers = real(questions)
        yield next(answers)
        yield next(answers)
        raise KeyboardInterrupt

    monkeypatch.setattr(own._engine.model, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached.loglikelihood(requests("loglikelihood", asked()["loglikelihood"]))
    assert len(cached.dbdict) == 3  # two answers and the stamp


def test_the_cache_of_another_model_is_refused(tmp_path: Path) -> None:
    path, pairs = str(tmp_path / "cache.db"), requests("loglikelihood", asked()["loglikelihood"])
    CachingLM(ours(NAMES[0]), path).loglikelihood(pairs)
    for other in (ours(NAMES[1]), ours(NAMES[0], max_length=24), ours(NAMES[0], boundary="lcp")):
        with pytest.raises(UsageError, match="model or other settings"):
            CachingLM(other, path)
    CachingLM(theirs(NAMES[0]), str(tmp_path / "hf.db")).loglikelihood(pairs)
    with pytest.raises(UsageError, match="an unknown model"):
        CachingLM(ours(NAMES[0]), str(tmp_path / "hf.db"))


# Where the harness is silently wrong, or stops


def test_every_request_has_its_own_number_and_none_of_another() -> None:
    """In the harness's shortcut, requests with the same tokens split elsewhere take each other's numbers."""
    own = ours(NAMES[0])
    tokens = own.tok_encode("Who keeps the gate of lamps?")
    splits = [(None, tokens[:place], tokens[place:]) for place in (2, 3, 5)]
    totals = own._loglikelihood_tokens(splits)
    plain = theirs(NAMES[0])._loglikelihood_tokens(splits, disable_tqdm=True)
    assert all(
        near(total, expected) for (total, _), (expected, _) in zip(totals, plain, strict=True)
    )


def test_another_boundary_scores_all_of_the_text() -> None:
    boundary = ours(NAMES[0], boundary="lcp")
    texts = [
        ("Who keeps the ga", "te"),
        ("Who keeps the ga", "rden"),
        ("Who keeps the gate?", " nobody"),
    ]
    instances = requests("loglikelihood", texts)
    for instance in instances[:2]:
        instance.doc_id = 0
    totals = boundary.loglikelihood(instances)
    model, asked = (
        load_model(str(MODELS[0]), dtype="float32"),
        {texts[0][0]: ["te", "rden"], texts[2][0]: [" nobody"]},
    )
    expected = [
        each
        for context, ends in asked.items()
        for each in score(model, context, ends)["sum"].to_pylist()
    ]
    assert all(near(total, other) for (total, _), other in zip(totals, expected, strict=True))


# Answers that are not simply the likeliest tokens


def test_drawn_answers_depend_on_the_seed_and_the_request_alone() -> None:
    import torch

    own, settings = ours(NAMES[0]), {"max_gen_toks": 8, "do_sample": True, "temperature": 3.0}
    asked = requests(
        "generate_until", [("Who?", settings), ("Who?", settings), ("What is it?", settings)]
    )
    torch.manual_seed(1234)
    first = own.generate_until(asked)
    torch.rand(5)
    assert own.generate_until([asked[2], asked[0], asked[1]]) == [first[2], first[0], first[1]]
    assert first[0] != first[1]  # repeats of one request are other samples
    torch.manual_seed(4321)
    assert own.generate_until(asked) != first


@pytest.mark.parametrize(
    "settings", [{"num_beams": 3}, {"repetition_penalty": 1.3}, {"max_length": 30}]
)
def test_other_generations_are_the_model_s_own(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"max_gen_toks": 12, "until": ["."], **settings}
    asked = [*written_after("Who keeps the gate?", own), *written_after("A ferry", own)]
    expected = theirs(NAMES[0]).generate_until(asked, disable_tqdm=True)
    capsys.readouterr()
    assert ours(NAMES[0]).generate_until(asked) == expected
    assert "2 of 2 answers are generated" in capsys.readouterr().err


def test_unknown_settings_and_no_room_for_a_context_are_refused() -> None:
    with pytest.raises(UsageError, match="no_such_setting"):
        ours(NAMES[0]).generate_until(
            written_after("Who?", {"max_gen_toks": 3, "no_such_setting": 1})
        )
    with pytest.raises(UsageError, match="leaves no room"):
        ours(NAMES[0], max_length=24).generate_until(written_after("Who?", {"max_gen_toks": 24}))


def test_a_stop_may_be_a_special_token_or_within_a_token() -> None:
    """The text of a special one is in no token's bytes; the harness finds it in the text with special tokens."""
    own, hf = ours(NAMES[0]), theirs(NAMES[0])
    stop = own.tokenizer.convert_ids_to_tokens(own.tokenizer.bos_token_id)
    asked = written_after("Who?", {"max_gen_toks": 12, "until": [stop]})
    assert own.tok_encode(own.generate_until(written_after("Who?", {"max_gen_toks": 12}))[0])
    assert own.generate_until(asked) == hf.generate_until(asked, disable_tqdm=True)
    (free,) = own.generate_until(written_after("The harbour of", {"max_gen_toks": 16}))
    stops = [free[place : place + 2] for place in range(1, 24, 3)]
    asked = written_after(
        "The harbour of", *({"max_gen_toks": 16, "until": [stop]} for stop in stops)
    )
    answers = own.generate_until(asked)
    assert answers == [free.split(stop)[0] for stop in stops]
    assert answers == hf.generate_until(asked, disable_tqdm=True)


BASE = max(MODELS)
PAIRS = [
    *(
        ("What is it?\nAnswer:", " the frog"),
        ("What is it?\nAnswer:", " a"),
        ("What is it? ", "the frog and a dog"),
    ),
    *(
        ("", "the heron"),
        ("the heron and the frog " * 30, "catch fish"),
        ("What is it?\nAnswer:", " the frog"),
    ),
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
    assert all(
        map(
            near,
            own.loglikelihood_rolling(asked),
            hf.loglikelihood_rolling(asked, disable_tqdm=True),
        )
    )


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
    return save_beside(
        tiny(family, vocab_size=len(AutoTokenizer.from_pretrained(BASE)), **changes), folder
    )


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
    alone = ChoicewiseLM(
        pretrained=str(SHARED / "tiny-rwkv-4v0-660K"), dtype="float32", device="cpu"
    )
    some = requests("loglikelihood", PAIRS[:2])
    assert alone.loglikelihood(some) == own.loglikelihood(some)
    for kind, text in {
        "loglikelihood": ("", "the heron"),
        "loglikelihood_rolling": "the heron",
    }.items():
        with pytest.raises(ModelError, match="prefix_token_id"):
            getattr(alone, kind)(requests(kind, [text]))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "pretrained is missing"),
        ({"pretrained": "fake:hash"}, "pass a model folder"),
        ({"pretrained": str(BASE), "revision": "v2"}, "has no revision v2"),
        ({"pretrained": str(BASE), "backend": "seq2seq"}, "is causal"),
        ({"pretrained": str(BASE), "parallelize": True}, "parallelize=True can't be used"),
        ({"pretrained": str(BASE), "max_length": 4096}, "has 1024 positions"),
        ({"pretrained": str(BASE), "dtyp": "float32"}, "did you mean dtype"),
        ({"pretrained": "nowhere/at/all"}, "no model folder"),
        ({"pretrained": str(BASE), "boundary": "mine"}, "must be one of harness"),
    ],
)
def test_arguments_that_can_t_hold_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ModelError, UsageError), match=complaint):
        ChoicewiseLM(**arguments)


def test_several_processes_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"batch_size": "auto", "max_batch_size": 8, "device": "cpu"}
    ChoicewiseLM.create_from_arg_obj({"pretrained": str(BASE), "logits_cache": False}, given)
    told = capsys.readouterr()
    assert (told.out, told.err.count("batch_size and max_batch_size have no effect")) == ("", 1)
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
    own = ChoicewiseLM(
        pretrained=str(save_beside(model, folders / "nan")), dtype="float32", device="cpu"
    )
    with pytest.raises(ModelError, match="NaN"):
        own.loglikelihood(requests("loglikelihood", PAIRS))
    with pytest.raises(ModelError, match="NaN"):
        own.generate_until(
            requests("generate_until", [("the frog and the heron", {"max_gen_toks": 3})])
        )


def test_the_checkpoint_s_own_dtype_is_the_default(folders: Path) -> None:
    model = tiny("llama", vocab_size=len(AutoTokenizer.from_pretrained(BASE))).to(torch.bfloat16)
    told = {"pretrained": str(save_beside(model, folders / "bfloat16")), "device": "cpu"}
    own, hf = ChoicewiseLM(**told), HFLM(**told)
    assert (
        str(own.get_model_info()["model_dtype"])
        == str(hf.get_model_info()["model_dtype"])
        == "torch.bfloat16"
    )
    asked: list[Instance] = requests("loglikelihood", PAIRS)
    for (total, _), (expected, _) in zip(
        own.loglikelihood(asked), hf.loglikelihood(asked), strict=True
    ):
        assert total == pytest.approx(expected, rel=0.05)  # theirs are rounded to three digits


def test_adapters_have_the_harness_s_numbers(folders: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(
        r=4, lora_alpha=32, init_lora_weights=False, target_modules="all-linear"
    )
    torch.manual_seed(0)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(BASE), config).save_pretrained(
        folders / "lora"
    )
    compare(*both(BASE, peft=str(folders / "lora")))
