"""Local models: log-probabilities against an independent computation, and what is refused."""

import json
import shutil
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paths import SHARED

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local import files as checkpoint
from choicewise.models.local import plain
from choicewise.models.local.local_model import LocalModel
from choicewise.questions import Generation, Ids, Sampling, Span
from choicewise.tokens.encode import Encodings
from tests.helpers.protocols import choice_questions
from tests.helpers.tiny_models import load

REAL = ["stories260K", "babyllama-tok105", "aidreams260K", "tiny-rwkv-4v0-660K"]
RANDOM = ["gpt2", "gpt-neox-20b", "mistral-7b-v0.2"]
TEXTS = [
    ("Once upon a time, there was a", " little girl named Lily."),
    ("Question: 你好 means?\nAnswer:", " hello 👍🏽"),
    ("", "def f(x):\n    return x"),
]
# The first sentences of karpathy/llama2.c doc/stories260K.md, greedy.
PUBLISHED = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do."
)


@pytest.fixture(scope="module")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of tiny random models, each with a published tokenizer and its vocabulary."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    root = tmp_path_factory.mktemp("models")
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    configs = {
        "gpt2": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256),
        "gpt-neox-20b": transformers.LlamaConfig(vocab_size=50304, max_position_embeddings=256, **small),
        "mistral-7b-v0.2": transformers.LlamaConfig(
            vocab_size=32000, num_key_value_heads=2, max_position_embeddings=256, **small
        ),
    }
    for name, config in configs.items():
        if name == "gpt-neox-20b":
            config.bos_token_id = config.eos_token_id = 0
        config.initializer_range = 0.3  # so that log-probabilities differ by nats
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(root / name)
        shutil.copyfile(SHARED / "tokenizers" / name / "tokenizer.json", root / name / "tokenizer.json")
    return root


@cache
def model_of(folder: Path) -> LocalModel:
    if not folder.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return load(folder, device="cpu")


def real(name: str = "stories260K") -> LocalModel:
    return model_of(SHARED / "models" / name)


def independent(model: torch.nn.Module, context: Ids, continuation: Ids) -> tuple[list[float], list[int]]:
    """Log-probabilities and ranks in plain transformers: every position, the whole vocabulary."""
    ids = torch.tensor([[*context.tolist(), *continuation.tolist()]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0].double(), dim=-1)
    rows = logprobs[len(context) - 1 : -1]
    chosen = [float(row[token]) for row, token in zip(rows, continuation, strict=True)]
    ranks = [int((row > row[token]).sum()) for row, token in zip(rows, continuation, strict=True)]
    return chosen, ranks


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("name", [*REAL, *RANDOM])
def test_scores_equal_an_independent_computation(name: str, random_models: Path) -> None:
    folder = random_models / name if name in RANDOM else SHARED / "models" / name
    model = model_of(folder)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = [
        choice_questions(model.tokenizer, "joint", "default", context, [choice], [0])[0] for context, choice in TEXTS
    ]
    questions = [one.span for one in asked if one.span]
    assert len(questions) == len(TEXTS)
    for index, seen in model.answer(questions):
        span = questions[index]
        logprobs, ranks = independent(reference, span.context, span.continuation)
        assert seen.tokens.tolist() == span.continuation.tolist()
        assert seen.ranks.tolist() == ranks
        assert np.abs(seen.logprobs - np.asarray(logprobs)).max() < 1e-4
        assert abs(float(seen.logprobs.sum()) - sum(logprobs)) < 1e-4
        assert (seen.logprobs.dtype, seen.ranks.dtype, seen.tokens.dtype) == (np.float32, np.int32, np.int32)


@pytest.mark.parametrize("name", REAL)
@given(tokens=st.lists(st.integers(3, 104), min_size=3, max_size=20), data=st.data())
@settings(deadline=None, max_examples=10)
def test_scores_add_up(name: str, tokens: list[int], data: st.DataObject) -> None:
    """S(ab) = S(a) + S(b | a), wherever the cuts are."""
    ids = np.asarray(tokens, dtype=np.int32)
    first = data.draw(st.integers(1, len(ids) - 2))
    second = data.draw(st.integers(first + 1, len(ids) - 1))
    parts = [Span(ids[:first], ids[first:]), Span(ids[:first], ids[first:second]), Span(ids[:second], ids[second:])]
    seen = dict(real(name).answer(parts))
    whole, left, right = (seen[index].logprobs.sum(dtype=np.float64) for index in range(3))
    assert whole == pytest.approx(left + right, abs=1e-4)


def generation(model: LocalModel, text: str, limit: int) -> Generation:
    (context,) = Encodings(model.tokenizer, "default").contexts([text])
    return Generation(context, limit)


def test_generate_reproduces_the_published_text() -> None:
    model = real()
    ((_, made),) = model.answer([generation(model, "", 80)])
    assert len(made.tokens) == 80
    assert made.ranks.tolist() == [0] * 80
    text = model.tokenizer.decode(made.tokens).removeprefix(" ")
    assert text == PUBLISHED[: len(text)]


@pytest.mark.parametrize("name", ["stories260K", "tiny-rwkv-4v0-660K"])
def test_generate_keeps_the_raw_log_probabilities_and_stops(name: str) -> None:
    model = real(name)
    asked = generation(model, "Once upon", 12)
    long = plain.generate(model.model, model.vocabulary, asked, ())
    seen = plain.score(model.model, model.vocabulary, Span(asked.context, long.tokens))
    assert np.abs(long.logprobs - seen.logprobs).max() < 1e-4
    end = int(long.tokens[5])
    short = plain.generate(model.model, model.vocabulary, asked, {end})
    assert short.tokens.tolist() == long.tokens[: long.tokens.tolist().index(end) + 1].tolist()


def test_the_plain_rung_counts_what_it_computes(shared_data: Path) -> None:
    model = load(shared_data / "models/stories260K", device="cpu", rung="plain")
    asked = generation(model, "Once upon", 3)
    length = len(asked.context)
    assert len(list(model.answer([Span(asked.context, asked.context)]))) == 1
    assert model.computed == 2 * length - 1
    for question in (asked, Generation(asked.context, 3, (b"\x00",), Sampling(b""))):
        before = model.computed
        ((_, seen),) = model.answer([question])
        assert len(seen.tokens) == 3
        assert model.computed - before == length + (length + 1) + (length + 2)


def test_counting_computed_tokens_computes_none(shared_data: Path) -> None:
    """The model is examined once, not again for hidden states that nothing asks for."""
    model = load(shared_data / "models/stories260K", device="cpu")
    assert model.lm.computed == 0
    passes: list[int] = []
    hook = model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    assert (model.computed, passes) == (0, [])
    hook.remove()


@pytest.mark.costly("networks are computed")
def test_sixteen_bit_weights_still_get_a_float32_softmax() -> None:
    """Sixteen-bit log-probabilities lie on a coarse grid and tie; ours must not be rounded to it."""
    model = load(SHARED / "models" / "stories260K", dtype="bfloat16", device="cpu") if SHARED.is_dir() else real()
    assert model.dtype == "bfloat16"
    ids = generation(model, PUBLISHED, 1).context
    ((_, seen),) = model.answer([Span(ids[:5], ids[5:])])
    with torch.no_grad():
        logits = model.model(input_ids=torch.from_numpy(ids[None, :-1].astype(np.int64))).logits[0, 4:]
    expected = torch.log_softmax(logits.double(), dim=-1)[range(len(ids) - 5), ids[5:].tolist()]
    assert np.abs(seen.logprobs - expected.numpy()).max() < 1e-5
    rounded = torch.from_numpy(seen.logprobs).bfloat16().float().numpy()
    assert np.abs(seen.logprobs - rounded).max() > 1e-4


class Table(torch.nn.Module):
    """A model whose logits are the same at every position."""

    device = torch.device("cpu")

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.row = torch.tensor(logits)

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> object:
        logits = self.row.expand(1, input_ids.shape[1], len(self.row))
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


def test_plain_score_leaves_padding_rows_out_and_keeps_nan() -> None:
    span = Span(np.asarray([0], dtype=np.int32), np.asarray([0, 1], dtype=np.int32))
    seen = plain.score(Table([1.0, 1.0, 1.0, 99.0]), 3, span)
    assert seen.logprobs.tolist() == pytest.approx([-np.log(3)] * 2)
    assert seen.ranks.tolist() == [0, 0]  # equal logits are not greater ones
    assert np.isnan(plain.score(Table([float("nan"), 1.0, 1.0]), 3, span).logprobs).all()
    assert plain.score(Table([float("-inf"), 1.0]), 2, span).logprobs.tolist() == [float("-inf"), 0.0]


def test_plain_generate_takes_the_first_of_equals() -> None:
    made = plain.generate(Table([0.0, 2.0, 2.0, 9.0]), 3, Generation(np.asarray([0], dtype=np.int32), 2), ())
    assert made.tokens.tolist() == [1, 1]


@pytest.mark.parametrize("name", REAL)
def test_looks_ahead_clears_causal_models(name: str) -> None:
    assert not plain.looks_ahead(real(name).model, real(name).vocabulary)


def test_load_refuses_a_model_that_looks_ahead(shared_data: Path, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=30522
    )
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    shutil.copyfile(shared_data / "tokenizers/bert-base-uncased/tokenizer.json", tmp_path / "tokenizer.json")
    with pytest.raises(ModelError, match="looks ahead"):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize(("name", "window"), [*zip(REAL, [512, 256, 128, 1024], strict=True)])
def test_load_reads_what_the_folder_says(name: str, window: int) -> None:
    model = real(name)
    assert (model.name, model.window, model.dtype, model.device) == (name, window, "float32", "cpu")
    assert model.ends == {0 if "rwkv" in name else 2}
    assert model.vocabulary == len(model.tokenizer.token_bytes)


def test_load_is_silent_and_leaves_no_trace(shared_data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logging = transformers.utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    load_model(shared_data / "models/aidreams260K", device="cpu", window=64)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_model_refuses_what_it_would_answer_wrongly(random_models: Path) -> None:
    model = load(SHARED / "models/aidreams260K", device="cpu", window=8)
    ids = np.arange(3, 13, dtype=np.int32)
    assert len(list(model.answer([Span(ids[:5], ids[5:9])]))) == 1
    with pytest.raises(ModelError, match="10 tokens are too many for aidreams260K, whose window is 8"):
        list(model.answer([Span(ids[:5], ids[5:])]))
    with pytest.raises(ModelError, match="too many"):
        list(model.answer([Generation(ids[:8], 2)]))
    with pytest.raises(ModelError, match="token 512, but the model knows only 512"):
        list(model.answer([Span(ids[:1], np.asarray([512], dtype=np.int32))]))


def folder_without(tmp_path: Path, missing: str = "") -> Path:
    """A writable copy of a small model's folder."""
    for file in (SHARED / "models/aidreams260K").iterdir():
        if file.name != missing:
            shutil.copyfile(file, tmp_path / file.name)
    return tmp_path


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "no tokenizer.json; copy tokenizer.json and tokenizer_config.json into it"),
        ("model.safetensors", r"no model.safetensors, and other formats .*save_pretrained"),
    ],
)
def test_load_names_the_missing_file(shared_data: Path, tmp_path: Path, missing: str, message: str) -> None:
    folder = folder_without(tmp_path, missing)
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    (folder / "tokenizer.model").unlink()  # of which a tokenizer could be made
    with pytest.raises(ModelError, match=message):
        load(folder, device="cpu")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda data: data[:50], "config.json is not JSON"),
        ("config.json", lambda data: b"[]", "not a JSON object"),
        (
            "config.json",
            lambda data: data.replace(b'"llama"', b'"no-such"'),
            "can't be loaded as a causal language model",
        ),
        ("config.json", lambda data: data.replace(b'"num_hidden_layers": 4', b'"num_hidden_layers": 5'), "be random"),
        (
            "config.json",
            lambda data: data.replace(b'"vocab_size": 512', b'"vocab_size": 520'),
            r"embed_tokens.weight has shape \[512, 64\] instead of \[520, 64\].*; fetch the folder again",
        ),
        (
            "config.json",
            lambda data: data.replace(b"max_position_embeddings", b"unheard_of"),
            "as the window, for example 2048",
        ),
        (
            "config.json",
            lambda data: data.replace(b"{", b'{"auto_map": {}, ', 1).replace(b'"llama"', b'"x"'),
            "code of its",
        ),
        ("tokenizer.json", lambda data: data[:-9], "is not a tokenizer"),
        ("tokenizer_config.json", lambda data: b"{", "is not JSON"),
        ("model.safetensors", lambda data: data[:-1], "should have 927832 bytes but has 927831"),
        ("model.safetensors", lambda data: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("model.safetensors", lambda data: b"", "not a safetensors file"),
    ],
)
def test_load_names_the_damage(shared_data: Path, tmp_path: Path, name: str, change: object, message: str) -> None:
    path = folder_without(tmp_path) / name
    data = path.read_bytes()
    assert change(data) != data  # type: ignore[operator]
    path.write_bytes(change(data))  # type: ignore[operator]
    with pytest.raises(ModelError, match=message):
        load(tmp_path, device="cpu")


def test_load_refuses_weights_that_the_configuration_has_no_place_for(shared_data: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = folder_without(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    harmless = {"vision_tower.layers.7.weight": torch.zeros(2), "model.layers.0.rotary_emb.inv_freq": torch.zeros(2)}
    save_file(tensors | harmless, weights, {"format": "pt"})
    assert load(tmp_path, device="cpu").vocabulary == 512
    save_file(tensors | {"model.layers.0.mlp.extra.weight": torch.zeros(2)}, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"has no place \(model\.layers\.0\.mlp\.extra\.weight; 1 in all\)"):
        load(tmp_path, device="cpu")


def test_experts_that_can_not_be_merged_are_refused_with_the_reason(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from choicewise.models.local.networks import load_network
    from tests.helpers.tiny_models import tiny

    tiny("mixtral").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if "experts.1." in name)
    save_file(tensors | {name: tensors[name][:-1].clone()}, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"can't be merged into .*experts.*: .+; fetch the folder again") as caught:
        load_network(tmp_path, {}, "float32", "cpu", False)
    assert "above report" not in str(caught.value)


def test_load_runs_an_implementation_of_transformers_own(shared_data: Path, tmp_path: Path) -> None:
    """Folders may offer code although transformers knows the model; that code is never needed or run."""
    path = folder_without(tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}))
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    assert load(tmp_path, device="cpu").vocabulary == 512


@pytest.mark.parametrize("name", ["window", "batch_tokens"])
@pytest.mark.parametrize("tokens", [0, -5])
def test_load_refuses_to_do_without_tokens(shared_data: Path, name: str, tokens: int) -> None:
    with pytest.raises(ModelError, match=f"{name} is {tokens} tokens; it must be at least 1"):
        load(shared_data / "models/aidreams260K", device="cpu", **{name: tokens})


def test_load_refuses_an_unknown_dtype(shared_data: Path) -> None:
    with pytest.raises(ModelError, match="float32, bfloat16, float16, auto"):
        load(shared_data / "models/aidreams260K", dtype="int8")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "device is 'gpu'; it must be cpu, cuda or"),
        ("", "device is ''; it must be cpu"),
        ("cuda:99", r"device is 'cuda:99', but torch \S+ finds only cpu.*; leave the device out"),
        ("meta", r"device is 'meta', but torch \S+ finds only cpu.*; leave the device out"),
    ],
)
def test_load_blames_the_device_and_not_the_folder(tmp_path: Path, device: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path, device=device)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt2", "pass a folder"),
        ("org/model-7B", "no folder of that name here, and it is not"),
        (__file__, "it is a file; pass the folder"),
        ("tiny-q4.GGUF", "a GGUF file is for llama.cpp: serve it.*server:http://127.0.0.1:8000/v1#NAME"),
    ],
)
def test_load_model_says_what_to_do(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(name)


def test_load_model_names_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("choicewise.models.local.networks", raising=False)
    monkeypatch.delitem(sys.modules, "choicewise.models.local.networks", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"needs torch .* pip install 'choicewise\[hf\]'"):
        load_model(tmp_path)


def test_window_of_prefers_the_model_to_its_parts() -> None:
    folder = Path("somewhere")
    assert checkpoint.window_of({"n_positions": 8}, folder) == 8
    assert checkpoint.window_of({"text_config": {"max_position_embeddings": 9}}, folder) == 9
    with pytest.raises(ModelError, match="somewhere"):
        checkpoint.window_of({"max_position_embeddings": None}, folder)


def test_window_of_takes_what_is_asked_up_to_what_the_model_knows() -> None:
    folder = Path("somewhere")
    assert [checkpoint.window_of({"n_positions": 8}, folder, asked) for asked in (1, 8)] == [1, 8]
    assert checkpoint.window_of({"state_size": 16}, folder, 100_000) == 100_000
    with pytest.raises(ModelError, match=r"knows 8 positions \(n_positions in somewhere/config.json\), not 9; leave"):
        checkpoint.window_of({"n_positions": 8}, folder, 9)


@pytest.mark.parametrize("name", RANDOM)
def test_load_refuses_a_window_beyond_the_model(random_models: Path, name: str) -> None:
    with pytest.raises(ModelError, match="knows 256 positions .* leave the window out or pass at most 256"):
        load(random_models / name, device="cpu", window=257)


def test_weight_files_follow_the_index(shared_data: Path, tmp_path: Path) -> None:
    folder = folder_without(tmp_path)
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}))
    (found,) = checkpoint.weight_files(folder)
    assert found.name == "model-1.safetensors"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    with pytest.raises(ModelError, match=r"model-2\.safetensors is missing though"):
        checkpoint.weight_files(folder)
    index.write_text("{}")
    with pytest.raises(ModelError, match="no index"):
        checkpoint.weight_files(folder)


@pytest.mark.parametrize("chunk", [1 << 20, 100])
def test_digest_is_of_the_content(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """The same folder elsewhere has the same digest; other weights, another configuration or tokenizer have not."""
    monkeypatch.setattr(checkpoint, "CHUNK", chunk)  # the small one makes these weights count as large
    folder = folder_without(tmp_path)
    original = checkpoint.digest(folder, "t")
    assert original == checkpoint.digest(shared_data / "models/aidreams260K", "t")
    assert original != checkpoint.digest(folder, "u")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    changed = checkpoint.digest(folder, "t")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("1e-05", "1e-06"))
    assert len({original, changed, checkpoint.digest(folder, "t")}) == 3


def test_read_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    assert checkpoint.read_config(tmp_path) == {"vocab_size": 3}
