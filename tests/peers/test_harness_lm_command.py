"""``choicewise lm-eval`` as a user types it, and what the harness then writes: results, samples, its cache."""

import json
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.model import CachingLM
from lm_eval.api.registry import get_model

from choicewise import load_model, score
from choicewise.bundled import MODELS
from choicewise.errors import UsageError
from choicewise.integrations.lm_eval import register
from choicewise.integrations.lm_eval.model import ChoicewiseLM

from .harness_compared import NAMES, near, ours, requests, theirs
from .test_harness_lm_tasks import TASKS, alike
from .test_harness_lm_tasks import tasks as tasks

LINE = "run --model {} --model_args pretrained={},dtype=float32 --tasks letters,stories,answers --device cpu"
LINE += " --batch_size 4"


def written_after(text: str, *settings: dict[str, Any]) -> list[Any]:
    """Requests to write on after a text, under each of the settings."""
    return requests("generate_until", [(text, each) for each in settings])


def harness(model: str, tasks: Path, *further: str) -> subprocess.CompletedProcess[str]:
    """The harness's command line through ours, in a process of its own."""
    words = LINE.format(model, MODELS[0]).split()
    line = [sys.executable, "-m", "choicewise", "lm-eval", *words, "--include_path", str(tasks), *further]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=tasks)


def written(folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The results file below ``folder``, and the samples of each task."""
    (results,) = folder.rglob("results_*.json")
    samples = {}
    for task in TASKS:
        for file in folder.rglob(f"samples_{task}_2*.jsonl"):
            samples[task] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
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
                return [float(each) for each in value.strip("[]").split()] if value[:1] == "[" else float(value)
    return value


def test_a_line_gives_the_same_files_where_only_the_model_changes(tasks: Path, tmp_path: Path) -> None:
    wrote, tables = {}, {}
    for model in ("hf", "choicewise"):
        done = harness(model, tasks, "--log_samples", "--output_path", str(tmp_path / model), "--bootstrap_iters", "10")
        if done.returncode and "bootstrap_iters" in done.stderr:
            done = harness(model, tasks, "--log_samples", "--output_path", str(tmp_path / model))
        assert done.returncode == 0, done.stderr
        wrote[model] = written(tmp_path / model)
        tables[model] = done.stdout.splitlines()
    (expected, their_samples), (own, our_samples) = wrote["hf"], wrote["choicewise"]
    for part in ("results", "configs", "versions", "n-shot", "n-samples", "higher_is_better", "max_length"):
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
    assert done.stderr.splitlines()[-1].startswith("error: the model choicewise has no argument 'dtyp'")
    assert "Traceback" not in done.stderr
    unknown = harness("choicewise", tasks, "--no_such_option")
    assert unknown.returncode == 2
    assert "--no_such_option" in unknown.stderr


def test_releases_that_look_for_the_model_find_it_and_the_harness_s_own_stay_known() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    answers = [("Who?", {"max_gen_toks": 5, "until": ["."]}), ("What?", {"max_gen_toks": 5, "until": ["."]})]
    return {"loglikelihood": pairs, "loglikelihood_rolling": ["the gate", "the lamp"], "generate_until": answers}


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


def test_a_cache_is_filled_while_answers_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        with pytest.raises(UsageError, match="answers of another model or other settings"):
            CachingLM(other, path)
    CachingLM(theirs(NAMES[0]), str(tmp_path / "hf.db")).loglikelihood(pairs)
    with pytest.raises(UsageError, match="a model or settings that it does not name"):
        CachingLM(ours(NAMES[0]), str(tmp_path / "hf.db"))


# Where the harness is silently wrong, or stops


def test_every_request_has_its_own_number_and_none_of_another() -> None:
    """In the harness's shortcut, requests with the same tokens split elsewhere take each other's numbers."""
    own = ours(NAMES[0])
    tokens = own.tok_encode("Who keeps the gate of lamps?")
    splits = [(None, tokens[:place], tokens[place:]) for place in (2, 3, 5)]
    totals = own._loglikelihood_tokens(splits)
    plain = theirs(NAMES[0])._loglikelihood_tokens(splits, disable_tqdm=True)
    assert all(near(total, expected) for (total, _), (expected, _) in zip(totals, plain, strict=True))


def test_another_boundary_scores_all_of_the_text() -> None:
    boundary = ours(NAMES[0], boundary="lcp")
    texts = [("Who keeps the ga", "te"), ("Who keeps the ga", "rden"), ("Who keeps the gate?", " nobody")]
    instances = requests("loglikelihood", texts)
    for instance in instances[:2]:
        instance.doc_id = 0
    totals = boundary.loglikelihood(instances)
    model, asked = load_model(str(MODELS[0]), dtype="float32"), {texts[0][0]: ["te", "rden"], texts[2][0]: [" nobody"]}
    expected = [each for context, ends in asked.items() for each in score(model, context, ends)["sum"].to_pylist()]
    assert all(near(total, other) for (total, _), other in zip(totals, expected, strict=True))


# Answers that are not simply the likeliest tokens


def test_drawn_answers_depend_on_the_seed_and_the_request_alone() -> None:
    import torch

    own, settings = ours(NAMES[0]), {"max_gen_toks": 8, "do_sample": True, "temperature": 3.0}
    asked = requests("generate_until", [("Who?", settings), ("Who?", settings), ("What is it?", settings)])
    torch.manual_seed(1234)
    first = own.generate_until(asked)
    torch.rand(5)
    assert own.generate_until([asked[2], asked[0], asked[1]]) == [first[2], first[0], first[1]]
    assert first[0] != first[1]  # repeats of one request are other samples
    torch.manual_seed(4321)
    assert own.generate_until(asked) != first


@pytest.mark.parametrize("settings", [{"num_beams": 3}, {"repetition_penalty": 1.3}, {"max_length": 30}])
def test_other_ways_to_generate_are_the_model_s_own(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"max_gen_toks": 12, "until": ["."], **settings}
    asked = [*written_after("Who keeps the gate?", own), *written_after("A ferry", own)]
    expected = theirs(NAMES[0]).generate_until(asked, disable_tqdm=True)
    capsys.readouterr()
    assert ours(NAMES[0]).generate_until(asked) == expected
    assert "2 of 2 answers are generated by the model's own code" in capsys.readouterr().err


def test_unknown_settings_and_no_room_for_a_context_are_refused() -> None:
    with pytest.raises(UsageError, match="no_such_setting"):
        ours(NAMES[0]).generate_until(written_after("Who?", {"max_gen_toks": 3, "no_such_setting": 1}))
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
    asked = written_after("The harbour of", *({"max_gen_toks": 16, "until": [stop]} for stop in stops))
    answers = own.generate_until(asked)
    assert answers == [free.split(stop)[0] for stop in stops]
    assert answers == hf.generate_until(asked, disable_tqdm=True)
