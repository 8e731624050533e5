"""A bundle asked of a model in training gives what the model scores elsewhere, and leaves the training as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from choicewise import InLoop, evaluate, load_model, open_run
from choicewise.bundled import MODELS, bundled_folder
from choicewise.errors import DataError, ModelError, StoreError, UsageError
from choicewise.extensions.analyses.signal import trainings
from choicewise.extensions.training.bundles.bundle import Bundle
from choicewise.extensions.training.bundles.write import write_bundle
from choicewise.extensions.training.callbacks import InLoopCallback
from choicewise.extensions.training.in_loop import METRICS
from choicewise.protocols.between import under_metrics
from choicewise.results.sweep import run_folders

MODEL = "bundled:merrow-bpe-512"
HOW: dict[str, Any] = {"data": "bundled:merrowick", "subjects": ["food"], "limit": 3}
PROTOCOLS = [
    "mmlu/original@shots=1",
    "mmlu/cloze:sum",
    "mmlu/cloze:pmi-empty",
    "mmlu/cloze:byte_mean@metric=bpb",
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    return write_bundle(tokenizer=MODEL, protocols=PROTOCOLS, out=out, **HOW)


@pytest.fixture
def bundled() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(bundled_folder(MODEL, MODELS)).train()


def tiny(**changes: Any) -> LlamaForCausalLM:
    shape = {"vocab_size": 512, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**shape, "num_attention_heads": 2, **changes}))


class Plain(nn.Module):
    """No model of transformers: a token's logits depend on all before it.  It draws a number in every pass."""

    def __init__(self, vocabulary: int = 512) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(vocabulary, 8), nn.Linear(8, vocabulary)
        self.dropout, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(8)

    def forward(self, tokens: Tensor) -> Tensor:
        torch.rand(1)
        return self.head(self.dropout(self.norm(self.embed(tokens).cumsum(dim=1).mT).mT))


def slowly(bundle: Bundle, logits: Callable[[Tensor], Tensor]) -> tuple[list[float], list[int]]:
    """Every log-probability and rank by one sequence at a time, in float32."""
    logprobs, ranks = [], []
    with torch.no_grad():
        scored = (getattr(bundle.scored, name).tolist() for name in ("row", "position", "token"))
        for row, place, token in zip(*scored, strict=True):
            at = logits(torch.from_numpy(bundle.ids(row)[:place].astype(np.int64))[None])[
                0, -1
            ].float()
            logprobs.append(at.log_softmax(-1)[token].item())
            ranks.append(int((at > at[token]).sum()))
    return logprobs, ranks


def observed(folder: Path, bundle: Bundle) -> tuple[list[float], list[int]]:
    """The same of a run folder, in the same order."""
    table = open_run(folder).observations()
    keys, logprobs, ranks = (table[name].to_pylist() for name in ("key", "logprobs", "ranks"))
    known = dict(zip(keys, zip(logprobs, ranks, strict=True), strict=True))
    parts = [known[key] for key in bundle.prompt_keys()]
    return [log for logs, _ in parts for log in logs], [
        rank for _, ranks in parts for rank in ranks
    ]


@pytest.mark.costly("two evaluations of a model")
def test_it_says_what_the_model_scores(
    bundle: Bundle, bundled: LlamaForCausalLM, tmp_path: Path
) -> None:
    """Its own metrics, and those that are made of its scores, are those of any other run."""
    asks = InLoop(bundle, tmp_path / "steps", batch_tokens=700)
    metrics = asks(bundled, 7)
    model = load_model(MODEL, rung="plain", device="cpu")
    direct = evaluate(model=model, out=tmp_path / "direct", protocols=PROTOCOLS, **HOW)
    expected = {}
    for name, protocol in direct.protocols.items():
        for metric in METRICS if protocol.metric == "acc" else [protocol.metric]:
            if not name.endswith("pmi-empty") or metric == "acc":
                (own,) = under_metrics({name: protocol}, [metric]).values()
                expected[f"choicewise/{name}/{metric}"] = direct.under({"": own}).rows()[0].value
    assert metrics == pytest.approx(expected, abs=1e-4)
    assert len({*metrics.values()}) > 5
    logprobs, ranks = observed(asks.folder(7), bundle)
    slow, slow_ranks = slowly(bundle, lambda ids: bundled.eval()(ids).logits)
    assert logprobs == pytest.approx(slow, abs=1e-4)
    assert np.mean(np.asarray(ranks) == slow_ranks) > 0.99


@pytest.mark.costly("a bundle is asked one sequence at a time")
@pytest.mark.parametrize("tokens", [1, 150, 100_000])
def test_a_module_of_any_kind_is_asked(bundle: Bundle, tmp_path: Path, tokens: int) -> None:
    """By itself, or by an adapter, in batches of any size: padding changes nothing, nor does dropout in training."""
    model = Plain()
    slow = slowly(bundle, lambda ids: model.eval()(ids))
    model.train()
    plain = InLoop(bundle, tmp_path / "plain", batch_tokens=tokens)
    plain(model, 1)
    seen = list[tuple[int, int]]()

    def forward(ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        assert torch.equal(positions, torch.arange(ids.shape[1]).expand_as(ids))
        seen.append(tuple(ids.shape))
        return model(torch.where(mask, ids, 511))

    adapted = InLoop(
        bundle,
        tmp_path / "adapted",
        batch_tokens=tokens,
        forward=forward,
        window=int(bundle.lengths.max()),
    )
    adapted(model, 1)
    assert len({length for _, length in seen}) <= 1 + max(bundle.lengths) // 32
    assert all(rows * length <= tokens or rows == 1 for rows, length in seen)
    for asks in (plain, adapted):
        logprobs, ranks = observed(asks.folder(1), bundle)
        assert logprobs == pytest.approx(slow[0], abs=1e-4)
        assert np.mean(np.asarray(ranks) == slow[1]) > 0.99


@pytest.mark.costly("a training with and without")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_training_goes_on_as_if_it_had_not_been_asked(
    bundle: Bundle, tmp_path: Path, compiled: bool
) -> None:
    """The same random numbers and means of a norm; in one autocast, with a part in eval mode, and frozen weights."""
    gradients, traces = [], []

    def backend(graph: Any, inputs: Any) -> Any:
        traces.append(graph)
        return graph.forward

    for asked in (False, True):
        torch.compiler.reset()
        model = Plain()
        model.frozen = nn.Dropout(0.5).eval()  # a mode of its own
        model.head.bias.requires_grad_(False)
        trained = torch.compile(model, backend=backend) if compiled else model
        tokens = torch.arange(24).reshape(2, 12)
        with torch.autocast("cpu", torch.bfloat16):
            if asked:
                InLoop(bundle, tmp_path / "steps")(trained, 1)
            trained(tokens).float().logsumexp(-1).mean().backward()
            if asked:
                InLoop(bundle, tmp_path / "steps")(trained, 2)
            trained(tokens).float().logsumexp(-1).mean().backward()
        assert [each.training for each in (model, model.dropout, model.frozen)] == [
            True,
            True,
            False,
        ]
        gradients.append(
            (
                model.embed.weight.grad,
                model.head.weight.grad,
                model.head.bias.grad,
                model.norm.running_var,
            )
        )
    for one, other in zip(*gradients, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)
    assert len(traces) == 2 * compiled  # one a training: lengths of ours were not compiled
    assert torch.is_autocast_cache_enabled()


@pytest.mark.costly("three runs")
def test_steps_make_a_line(bundle: Bundle, tmp_path: Path) -> None:
    asks, model = InLoop(bundle, tmp_path, name="pebble-1m", every=10), tiny()
    given = [bool(asks.when_due(model, step)) for step in range(0, 21, 5)]
    assert given == [True, False, True, False, True]
    (training,) = trainings([open_run(asks.folder(step)).manifest for step in (20, 0, 10)])
    assert (training.name, training.unit, training.at) == ("pebble-1m", "step", (0, 10, 20))
    with pytest.raises(StoreError, match="step10 already exists; .* overwrite=True"):
        asks(model, 10)
    asks(model)
    assert asks.folder(21).is_dir()
    asks(model, 100)
    assert [run.name for run in run_folders([tmp_path])] == [
        "step0",
        "step10",
        "step20",
        "step21",
        "step100",
    ]
    before = observed(asks.folder(10), bundle)
    with torch.no_grad():
        model.lm_head.weight.add_(torch.randn_like(model.lm_head.weight))
    InLoop(bundle, tmp_path, name="pebble-1m", overwrite=True)(model, 10)
    assert observed(asks.folder(10), bundle) != before


def test_only_a_run_of_the_same_model_and_step_is_overwritten(
    bundle: Bundle, tmp_path: Path
) -> None:
    asks, model = InLoop(bundle, tmp_path, name="pebble-1m", overwrite=True), tiny()
    checkpoint = tmp_path / "step7" / "model.safetensors"
    checkpoint.parent.mkdir()
    checkpoint.write_text("weights")
    with pytest.raises(StoreError, match=r"step7 holds model\.safetensors"):
        asks(model, 7)
    assert checkpoint.read_text() == "weights"
    checkpoint.rename(tmp_path / "step8")
    with pytest.raises(StoreError, match="step8 is a file"):
        asks(model, 8)
    asks(model, 7)  # the folder is empty now
    (tmp_path / "step7").rename(tmp_path / "step9")
    with pytest.raises(StoreError, match="step9 .* pebble-1m@step7, not .* pebble-1m@step9"):
        asks(model, 9)


def test_the_earlier_run_of_a_step_stays_until_the_new_one_is_written(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, model = InLoop(bundle, tmp_path, name="pebble-1m", overwrite=True), tiny()
    asks(model, 10)
    before = observed(asks.folder(10), bundle)

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("choicewise.extensions.training.in_loop.write_run", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        asks(model, 10)
    assert observed(asks.folder(10), bundle) == before
    assert [path.name for path in tmp_path.iterdir()] == ["step10"]


class Other:
    """A tokenizer that splits otherwise."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [1]


def _nan(model: LlamaForCausalLM) -> LlamaForCausalLM:
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    return model


REFUSED: dict[str, tuple[Callable[[Bundle, Path], object], type[Exception], str]] = {
    "vocabulary": (
        lambda bundle, out: InLoop(bundle, out)(tiny(vocab_size=300), 1),
        ModelError,
        "300 tokens, .*bundled:merrow-bpe-512, has token 5..; make a bundle",
    ),
    "a step that is a text": (
        lambda bundle, out: InLoop(bundle, out)(tiny(), "../1"),  # type: ignore[arg-type]
        UsageError,
        "step is '../1'; it must",
    ),
    "a name with half a character": (
        lambda bundle, out: InLoop(bundle, out, name="a\ud800")(tiny(), 1),
        DataError,
        "holds half a character",
    ),
    "vocabulary of a module": (
        lambda bundle, out: InLoop(bundle, out)(Plain(300), 1),
        ModelError,
        "the model has 300 tokens",
    ),
    "window": (
        lambda bundle, out: InLoop(bundle, out)(tiny(max_position_embeddings=40), 1),
        ModelError,
        "40 input tokens, .* has a row of .*window 40",
    ),
    "window of a module": (
        lambda bundle, out: InLoop(bundle, out, window=40)(Plain(), 1),
        ModelError,
        "takes 40 input tokens",
    ),
    "NaN": (
        lambda bundle, out: InLoop(bundle, out)(_nan(tiny()), 12),
        ModelError,
        "at step 12 .* log-probabilities are nan: rows [0-9a-f]{32}",
    ),
    "tokenizer": (
        lambda bundle, out: InLoop(bundle, out, tokenizer=Other()),
        ModelError,
        r"tokenizer bundled:merrow-bpe-512, .* gives \[1\]",
    ),
    "tokenizer by name": (
        lambda bundle, out: InLoop(bundle, out, tokenizer="bytes"),
        ModelError,
        "not bytes",
    ),
    "no logits": (
        lambda bundle, out: InLoop(bundle, out)(nn.Sequential(nn.Embedding(512, 4)), 1),
        ModelError,
        r"gave \(.*, 4\) for .* rows of .* tokens, not logits .*; pass forward",
    ),
    "metric": (
        lambda bundle, out: InLoop(bundle, out, metrics=["accuracy"]),
        UsageError,
        "no metric is called",
    ),
    "cadence": (lambda bundle, out: InLoop(bundle, out, every=0), UsageError, "every is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(bundle: Bundle, tmp_path: Path, name: str) -> None:
    """By name, and without a run."""
    act, kind, said = REFUSED[name]
    with pytest.raises(kind, match=said):
        act(bundle, tmp_path / "steps")
    assert not (tmp_path / "steps").exists()


def test_a_model_that_changes_between_steps_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    asks = InLoop(bundle, tmp_path)
    model = tiny()
    asks(model, 1)
    model.resize_token_embeddings(300)
    with pytest.raises(ModelError, match="the model has 300 tokens"):
        asks(model, 2)
    assert [each.name for each in tmp_path.iterdir()] == ["step1"]


@pytest.mark.costly("a training with the Trainer")
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_asks(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    options = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    arguments = TrainingArguments(
        str(tmp_path), max_steps=5, per_device_train_batch_size=1, **options
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 5
    trainer = Trainer(tiny(), arguments, train_dataset=rows)
    asks = InLoop(bundle, tmp_path / "steps", every=2)
    trainer.add_callback(InLoopCallback(asks, trainer.log))
    trainer.train()
    scalar = "choicewise/mmlu/original@shots=1/acc"
    logged = {each["step"]: each[scalar] for each in trainer.state.log_history if scalar in each}
    assert sorted(logged) == [2, 4, 5]
    assert sorted(each.name for each in asks.out.iterdir()) == ["step2", "step4", "step5"]
    value = open_run(asks.folder(5)).rows()[0].value
    assert logged[5] == value
    trainer = Trainer(tiny(), arguments, train_dataset=rows, processing_class=None)
    trainer.callback_handler.processing_class = Other()
    trainer.add_callback(InLoopCallback(InLoop(bundle, tmp_path / "other"), trainer.log))
    with pytest.raises(ModelError, match="this training's tokenizer"):
        trainer.train()
