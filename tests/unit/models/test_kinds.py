"""Kinds of models: a name's prefix says the kind, and the kind refuses the options that it does not take."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from choicewise import ports
from choicewise.cli import options
from choicewise.errors import ModelError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.kinds import answering_kind, kind_of, model_kind
from choicewise.models.load import load_model
from choicewise.models.opening import locate_model
from choicewise.ports import LOADING, Extension, Loading, ModelKind, all_of
from choicewise.records import EndpointRecord, Manifest, ServerRecord
from choicewise.results.rows import run_id
from choicewise.running import job
from choicewise.running.evaluate import evaluate
from choicewise.running.job import job_of
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.study import Study

PREFIXES = {
    "server:http://host/v1#m": "server",
    "vllm:org/name": "vllm",
    "decisions:http://host/v1#m": "decisions",
    "fake:hash": "fake",
    "bundled:merrow-byte": "bundled",
    "org/name": "local",
    "org/name:file.gguf": "local",
    "C:\\models\\m": "local",
    "models/server:1": "local",
    "other:name": "local",
}


class Steady(ModelKind):
    """A kind that another package adds."""

    name = "steady"
    takes = frozenset({"window"})
    because = "computes nothing"

    def check(self, name: str) -> None:
        if name == "steady:":
            raise ModelError("steady: names no model")

    def open(self, name: str, loading: Loading) -> HashModel:
        return HashModel(seed=len(name))

    def notes(self, folder: Path, manifest: Manifest) -> Iterator[str]:
        yield f"{manifest.model.name} computed nothing"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    extension = Extension("stranger", [Steady()])
    monkeypatch.setattr(ports, "other_extensions", lambda: (extension,))


@pytest.mark.parametrize(("name", "kind"), PREFIXES.items())
def test_a_prefix_says_the_kind(name: str, kind: str) -> None:
    assert model_kind(name).name == kind


def from_python(name: str, **options: Any) -> object:
    return load_model(name, **options)


def from_a_plan(name: str, **options: Any) -> object:
    return job_of({"models": [{"name": name, **options}], "protocols": ["mmlu"]}).choices


def from_the_command_line(name: str, **options: Any) -> object:
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    refused = choicewise("check", "--model", name, *words, code=UsageError.exit_code)
    raise UsageError(refused.stderr)


@pytest.mark.parametrize("way", [from_python, from_a_plan, from_the_command_line])
@pytest.mark.parametrize(
    ("name", "option", "reason"),
    [
        (
            "server:http://host/v1#m",
            {"device": "cpu"},
            "apply to server:http://host/v1#m, which is computed",
        ),
        (
            "decisions:http://host/v1#m,repeats=3",
            {"window": 9},
            "apply to decisions:http://host/v1#m, which is an endpoint",
        ),
        (
            "vllm:org/name",
            {"adapter": "folder"},
            "apply to vllm:org/name, which is computed by vLLM",
        ),
        ("fake:hash", {"dtype": "float32"}, "apply to fake:hash, which has no weights"),
        (
            "bundled:merrow-byte",
            {"tokenizer": "bytes"},
            "apply to bundled:merrow-byte, which brings",
        ),
        ("steady:x", {"dtype": "float32"}, "apply to steady:x, which computes nothing"),
    ],
)
def test_a_kind_refuses_an_option_everywhere_in_the_same_words(
    way: Callable[..., object], name: str, option: dict[str, object], reason: str, stranger: None
) -> None:
    with pytest.raises((ModelError, UsageError), match=reason) as refused:
        way(name, **option)
    assert next(iter(option)) in str(refused.value)


def test_the_run_of_a_kind_of_another_package_names_it(
    stranger: None, tmp_path: Path, study: Study
) -> None:
    model = load_model("steady:x", window=5)
    assert kind_of(model) is model_kind("steady:x")
    with pytest.raises(ModelError, match="names no model"):
        load_model("steady:")
    run = evaluate(model=model, data=study.data, protocols=["mmlu/original"], out=tmp_path / "run")
    assert run.manifest.model.kind == "steady"
    kind = answering_kind(run.manifest)
    assert kind is not None
    assert kind.name == "steady"
    assert (
        f"note: {model.name} computed nothing"
        in choicewise("report", tmp_path / "run", code=0).stderr
    )


def test_workers_are_refused_for_a_kind_that_is_computed_in_one_process(
    stranger: None, tmp_path: Path
) -> None:
    line = [
        "run",
        "--data",
        "bundled:merrowick",
        "--protocol",
        "mmlu/original",
        "--workers",
        2,
        "--out",
        tmp_path / "run",
    ]
    for name, reason in (
        ("steady:x", "steady:x ... one process; ... --workers"),
        ("server:http://host/v1#m", "no further workers; ... --workers"),
    ):
        assert choicewise(*line, "--model", name, code=UsageError.exit_code).stderr == Gist(reason)


def test_a_run_of_an_earlier_version_or_of_a_kind_that_is_gone_is_of_no_kind(
    tmp_path: Path, study: Study
) -> None:
    made = evaluate(
        model=HashModel(), data=study.data, protocols=["mmlu/original"], out=tmp_path / "run"
    )
    earlier = replace(made.manifest, model=replace(made.manifest.model, kind=""))
    assert "kind" not in earlier.stored()["model"]
    write_manifest(tmp_path / "run", earlier)
    assert answering_kind(read_manifest(tmp_path / "run")) is None
    assert run_id(earlier) == run_id(replace(earlier, model=replace(earlier.model, kind="fake")))
    assert answering_kind(replace(earlier, model=replace(earlier.model, kind="gone"))) is None


def test_every_way_to_load_a_model_offers_the_options_that_kinds_can_take() -> None:
    python = {*inspect.signature(load_model).parameters} - {
        "name_or_path",
        "elsewhere",
        "progress",
        "say",
    }
    assert python | {"memory"} == {*LOADING}
    assert {*job.Loading.model_fields} <= {*LOADING}
    assert {option.name for option in fields(options.Loading)} <= {*LOADING}
    for kind in all_of(ModelKind):
        assert kind.takes <= {*LOADING}


def test_the_run_of_an_endpoint_of_an_earlier_version_is_of_its_kind(
    tmp_path: Path, study: Study
) -> None:
    run = evaluate(
        model=HashModel(),
        data=study.data,
        protocols=["mmlu/original"],
        limit=1,
        out=tmp_path / "run",
    )
    earlier = replace(run.manifest, model=replace(run.manifest.model, kind=""))
    for endpoint, name in ((None, "server"), (EndpointRecord("systemone"), "decisions")):
        kind = answering_kind(
            replace(earlier, server=ServerRecord("m", "route", endpoint=endpoint))
        )
        assert kind is not None
        assert kind.name == name


def test_files_of_a_model_are_located_without_opening_it() -> None:
    folder, source = locate_model("bundled:merrow-byte")
    assert ((folder / "config.json").is_file(), source) == (True, "")
    with pytest.raises(ModelError, match="no model folder nowhere"):
        locate_model("nowhere")
    with pytest.raises(ModelError, match="server:http://host/v1"):
        locate_model("http://host/v1")


@pytest.mark.parametrize(("short", "long"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_a_dtype_has_one_name_in_a_job(short: str, long: str) -> None:
    table = {"data": ["bundled:merrowick"], "protocols": ["mmlu/original"]}
    first, second = (
        job_of({**table, "models": [{"name": "folder", "dtype": name}]}).choices[0]
        for name in (short, long)
    )
    assert first.options == {"dtype": long}
    assert first.label == second.label
