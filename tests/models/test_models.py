"""Local models: log-probabilities against an independent computation, and what is refused."""

import json
import random
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from choicewise import Run, evaluate, load_model
from choicewise.errors import ModelError
from choicewise.models.local import files as checkpoint
from choicewise.models.local import plain
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.networks import load_network
from choicewise.models.local.tokenizer import HfTokenizer, tokenizer_files
from choicewise.questions import Generation, Ids, Sampling, Span
from choicewise.tokens.encode import Encodings
from tests.helpers.answers import ids, in_order
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import choice_prompts
from tests.helpers.tiny_models import load, real_model, tiny
from tests.paths import ROOT, SHARED

REAL = ["stories260K", "babyllama-tok105", "aidreams260K", "tiny-rwkv-4v0-660K"]
RANDOM = ["gpt2", "gpt-neox-20b", "mistral-7b-v0.2"]
SMALLEST = SHARED / "models" / "aidreams260K"
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


@cache
def quick(folder: Path) -> LocalModel:
    """With a short window, which makes the self-check short: it is expensive where a vocabulary is large."""
    if not folder.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return load(folder, device="cpu", window=64)


def independent(
    model: torch.nn.Module, context: Ids, continuation: Ids
) -> tuple[list[float], list[int]]:
    """Log-probabilities and ranks in plain transformers: every position, the whole vocabulary."""
    ids = torch.tensor([[*context.tolist(), *continuation.tolist()]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0].double(), dim=-1)
    rows = logprobs[len(context) - 1 : -1]
    chosen = [float(row[token]) for row, token in zip(rows, continuation, strict=True)]
    return chosen, [
        int((row > row[token]).sum()) for row, token in zip(rows, continuation, strict=True)
    ]


@pytest.mark.costly("large vocabularies, and a network of rwkv, which computes token by token")
@pytest.mark.parametrize("name", [*REAL, *RANDOM])
def test_scores_equal_an_independent_computation(
    name: str, saved_model: Callable[[str], Path]
) -> None:
    folder = saved_model(name) if name in RANDOM else SHARED / "models" / name
    model = quick(folder)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = [
        choice_prompts(model.tokenizer, "joint", "default", text, [choice], [0])[0]
        for text, choice in TEXTS
    ]
    questions = [one.span for one in asked if one.span]
    assert len(questions) == len(TEXTS)
    for span, seen in zip(questions, in_order(model.answer(questions)), strict=True):
        logprobs, ranks = independent(reference, span.context, span.continuation)
        assert (seen.tokens.tolist(), seen.ranks.tolist()) == (span.continuation.tolist(), ranks)
        assert np.abs(seen.logprobs - np.asarray(logprobs)).max() < 1e-4
        assert abs(float(seen.logprobs.sum()) - sum(logprobs)) < 1e-4
        assert (seen.logprobs.dtype, seen.ranks.dtype, seen.tokens.dtype) == (
            np.float32,
            np.int32,
            np.int32,
        )


@pytest.mark.parametrize("name", REAL)
@given(tokens=st.lists(st.integers(3, 104), min_size=3, max_size=20), data=st.data())
@settings(max_examples=8)
def test_scores_add_up(name: str, tokens: list[int], data: st.DataObject) -> None:
    """S(ab) = S(a) + S(b | a), wherever the cuts are."""
    every = ids(*tokens)
    one = data.draw(st.integers(1, len(every) - 2))
    two = data.draw(st.integers(one + 1, len(every) - 1))
    parts = [
        Span(every[:one], every[one:]),
        Span(every[:one], every[one:two]),
        Span(every[:two], every[two:]),
    ]
    answers = in_order(quick(SHARED / "models" / name).answer(parts))
    whole, left, right = (seen.logprobs.sum(dtype=np.float64) for seen in answers)
    assert whole == pytest.approx(left + right, abs=1e-4)


def generation(model: LocalModel, text: str, limit: int) -> Generation:
    (context,) = Encodings(model.tokenizer, "default").contexts([text])
    return Generation(context, limit)


def test_generate_reproduces_the_published_text() -> None:
    model = real_model()
    ((_, made),) = model.answer([generation(model, "", 80)])
    assert (len(made.tokens), made.ranks.tolist()) == (80, [0] * 80)
    text = model.tokenizer.decode(made.tokens).removeprefix(" ")
    assert text == PUBLISHED[: len(text)]


@pytest.mark.costly("real networks")
@pytest.mark.parametrize("name", ["stories260K", "tiny-rwkv-4v0-660K"])
def test_generate_keeps_the_raw_log_probabilities_and_stops(name: str) -> None:
    model = real_model(name)
    asked = generation(model, "Once upon", 12)
    long = plain.generate(model.model, model.vocabulary, asked, ())
    seen = plain.score(model.model, model.vocabulary, Span(asked.context, long.tokens))
    assert np.abs(long.logprobs - seen.logprobs).max() < 1e-4
    end = int(long.tokens[5])
    short = plain.generate(model.model, model.vocabulary, asked, {end})
    assert short.tokens.tolist() == long.tokens[: long.tokens.tolist().index(end) + 1].tolist()


def test_the_plain_rung_counts_what_it_computes_and_counting_computes_none(
    shared_data: Path,
) -> None:
    model = load(shared_data / "models/stories260K", device="cpu", rung="plain")
    asked = generation(model, "Once upon", 3)
    length = len(asked.context)
    assert (len(list(model.answer([Span(asked.context, asked.context)]))), model.computed) == (
        1,
        2 * length - 1,
    )
    for question in (asked, Generation(asked.context, 3, (b"\x00",), Sampling(b""))):
        before = model.computed
        ((_, seen),) = model.answer([question])
        assert (len(seen.tokens), model.computed - before) == (
            3,
            length + (length + 1) + (length + 2),
        )
    # The model is examined once, not again for hidden states that nothing asks for.
    model = load(shared_data / "models/stories260K", device="cpu")
    assert model.lm.computed == 0
    passes: list[int] = []
    hook = model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    assert (model.computed, passes) == (0, [])
    hook.remove()


@pytest.mark.costly("a network and its float32 copy are examined")
def test_sixteen_bit_weights_still_get_a_float32_softmax(shared_data: Path) -> None:
    """Sixteen-bit log-probabilities lie on a coarse grid and tie; ours must not be rounded to it."""
    model = load(shared_data / "models" / "stories260K", dtype="bfloat16", device="cpu")
    assert model.dtype == "bfloat16"
    short = load_model(shared_data / "models" / "stories260K", dtype="bf16", device="cpu")
    assert (short.dtype, short.digest) == (model.dtype, model.digest)
    tokens = generation(model, PUBLISHED, 1).context
    ((_, seen),) = model.answer([Span(tokens[:5], tokens[5:])])
    with torch.no_grad():
        logits = model.model(input_ids=torch.from_numpy(tokens[None, :-1].astype(np.int64))).logits[
            0, 4:
        ]
    expected = torch.log_softmax(logits.double(), dim=-1)[
        range(len(tokens) - 5), tokens[5:].tolist()
    ]
    assert np.abs(seen.logprobs - expected.numpy()).max() < 1e-5
    assert (
        np.abs(seen.logprobs - torch.from_numpy(seen.logprobs).bfloat16().float().numpy()).max()
        > 1e-4
    )


class Table(torch.nn.Module):
    """A model whose logits are the same at every position."""

    device = torch.device("cpu")

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.row = torch.tensor(logits)

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> object:
        logits = self.row.expand(1, input_ids.shape[1], len(self.row))
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


def test_plain_score_and_generate_leave_padding_rows_out_and_keep_nan() -> None:
    span = Span(ids(0), ids(0, 1))
    seen = plain.score(Table([1.0, 1.0, 1.0, 99.0]), 3, span)
    assert seen.logprobs.tolist() == pytest.approx([-np.log(3)] * 2)
    assert seen.ranks.tolist() == [0, 0]  # equal logits are not greater ones
    assert np.isnan(plain.score(Table([float("nan"), 1.0, 1.0]), 3, span).logprobs).all()
    assert plain.score(Table([float("-inf"), 1.0]), 2, span).logprobs.tolist() == [
        float("-inf"),
        0.0,
    ]
    assert plain.generate(
        Table([0.0, 2.0, 2.0, 9.0]), 3, Generation(ids(0), 2), ()
    ).tokens.tolist() == [1, 1]


def test_load_refuses_a_model_that_looks_ahead(shared_data: Path, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=30522,
    )
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    shutil.copyfile(
        shared_data / "tokenizers/bert-base-uncased/tokenizer.json", tmp_path / "tokenizer.json"
    )
    with pytest.raises(ModelError, match="looks ahead"):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize(("name", "window"), [*zip(REAL, [512, 256, 128, 1024], strict=True)])
def test_load_reads_what_the_folder_says(name: str, window: int) -> None:
    model = real_model(name)
    assert (model.name, model.window, model.dtype, model.device) == (name, window, "float32", "cpu")
    assert model.ends == {0 if "rwkv" in name else 2}
    assert model.vocabulary == len(model.tokenizer.token_bytes)
    assert not plain.looks_ahead(model.model, model.vocabulary)


def test_load_is_silent_and_leaves_no_trace(
    shared_data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logging = transformers.utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    load_model(shared_data / "models/aidreams260K", device="cpu", window=64)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_model_refuses_what_it_would_answer_wrongly(shared_data: Path) -> None:
    model, tokens = load(SMALLEST, device="cpu", window=8), ids(*range(3, 13))
    assert len(list(model.answer([Span(tokens[:5], tokens[5:9])]))) == 1
    for question, reason in (
        (
            Span(tokens[:5], tokens[5:]),
            "10 tokens .* aidreams260K \\(8\\)",
        ),
        (Generation(tokens[:8], 2), "exceed"),
        (Span(tokens[:1], ids(512)), "token 512, .* only 512"),
    ):
        with pytest.raises(ModelError, match=reason):
            list(model.answer([question]))


@pytest.fixture
def folder(shared_data: Path, tmp_path: Path) -> Path:
    """A writable copy of a small model's folder."""
    for file in SMALLEST.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json"),
        (
            "tokenizer.json",
            "no tokenizer.json; .*hf download ORG/NAME tokenizer.json",
        ),
        ("model.safetensors", r"no model.safetensors, .*save_pretrained"),
    ],
)
def test_load_names_the_missing_file(folder: Path, missing: str, message: str) -> None:
    (folder / missing).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    (folder / "tokenizer.model").unlink()  # of which a tokenizer could be made
    with pytest.raises(ModelError, match=message):
        load(folder, device="cpu")


def swapped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda data: data[:50], "config.json is not JSON"),
        ("config.json", lambda data: b"[]", "not a JSON object"),
        (
            "config.json",
            swapped(b'"llama"', b'"no-such"'),
            "as a causal language",
        ),
        ("config.json", swapped(b'"num_hidden_layers": 4', b'"num_hidden_layers": 5'), "be random"),
        (
            "config.json",
            swapped(b'"vocab_size": 512', b'"vocab_size": 520'),
            r"embed_tokens.weight has shape \[512, 64\] instead of \[520, 64\].*; fetch the folder again",
        ),
        (
            "config.json",
            swapped(b"max_position_embeddings", b"unheard_of"),
            "for example window 2048",
        ),
        (
            "config.json",
            lambda data: b'{"auto_map": {}, ' + data[1:].replace(b'"llama"', b'"x"'),
            "its own code",
        ),
        ("tokenizer.json", lambda data: data[:-9], "is not a tokenizer"),
        ("tokenizer_config.json", lambda data: b"{", "is not JSON"),
        ("model.safetensors", lambda data: data[:-1], "should have 927832 bytes but has 927831"),
        (
            "model.safetensors",
            lambda data: b"version https://git-lfs.github.com/spec/v1\n",
            "git lfs pull",
        ),
        ("model.safetensors", lambda data: b"", "not a safetensors file"),
    ],
)
def test_load_names_the_damage(
    folder: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    data = (folder / name).read_bytes()
    assert change(data) != data
    (folder / name).write_bytes(change(data))
    with pytest.raises(ModelError, match=message):
        load(folder, device="cpu")


def test_load_refuses_weights_that_the_configuration_has_no_place_for(folder: Path) -> None:
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    harmless = {
        "vision_tower.layers.7.weight": torch.zeros(2),
        "model.layers.0.rotary_emb.inv_freq": torch.zeros(2),
    }
    save_file(tensors | harmless, weights, {"format": "pt"})
    assert load(folder, device="cpu").vocabulary == 512
    save_file(
        tensors | {"model.layers.0.mlp.extra.weight": torch.zeros(2)}, weights, {"format": "pt"}
    )
    with pytest.raises(
        ModelError, match=r"does not have \(model\.layers\.0\.mlp\.extra\.weight; 1 in all\)"
    ):
        load(folder, device="cpu")


def test_experts_that_can_not_be_merged_are_refused_with_the_reason(tmp_path: Path) -> None:
    tiny("mixtral").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if "experts.1." in name)
    save_file(tensors | {name: tensors[name][:-1].clone()}, weights, {"format": "pt"})
    with pytest.raises(
        ModelError, match=r"can't be merged into .*experts.*: .+; fetch the folder again"
    ) as caught:
        load_network(tmp_path, {}, "float32", "cpu", False)
    assert "above report" not in str(caught.value)


def test_load_runs_an_implementation_of_transformers_own(folder: Path) -> None:
    """Folders may offer code although transformers knows the model; that code is never needed or run."""
    path = folder / "config.json"
    path.write_text(
        json.dumps(
            json.loads(path.read_text()) | {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}
        )
    )
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    assert load(folder, device="cpu").vocabulary == 512


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({name: 0}, f"{name} is 0 tokens; .* at least 1") for name in ("window", "batch_tokens")),
        *(
            ({name: -5}, f"{name} is -5 tokens; .* at least 1")
            for name in ("window", "batch_tokens")
        ),
        ({"dtype": "int8"}, "float32, bfloat16, float16, auto"),
        ({"device": "gpu"}, "device is 'gpu'; .* cpu, cuda"),
        ({"device": ""}, "device is ''; it must be cpu"),
        (
            {"device": "cuda:99"},
            r"device is 'cuda:99', but torch \S+ finds only cpu.*; leave the device out",
        ),
        (
            {"device": "meta"},
            r"device is 'meta', but torch \S+ finds only cpu.*; leave the device out",
        ),
    ],
)
def test_load_refuses_impossible_options(
    shared_data: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(SMALLEST, **{"device": "cpu", **options})
    assert str(SMALLEST) not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gpt2",
            "no model folder gpt2; .* openai-community/gpt2",
        ),
        ("my-model", "pass a folder"),
        ("org/model-7B", "folder of that name"),
        (__file__, "is a file; pass"),
        ("tiny-q4.GGUF", "tiny-q4.GGUF; check the path.*ORG/NAME:FILE.gguf"),
    ],
)
def test_load_model_says_what_to_do(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(name)


def test_load_model_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("choicewise.models.local.networks", raising=False)
    monkeypatch.delitem(sys.modules, "choicewise.models.local.networks", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ModelError, match=r"needs torch .* pip install --constraint constraints\.txt '\.\[hf\]'"
    ):
        load_model(tmp_path)


def test_the_window_is_the_models_before_its_parts_and_what_is_asked_up_to_what_it_knows() -> None:
    window = lambda asked=None, **config: checkpoint.window_of(config, Path("somewhere"), asked)  # noqa: E731
    assert (window(n_positions=8), window(text_config={"max_position_embeddings": 9})) == (8, 9)
    assert [window(asked, n_positions=8) for asked in (1, 8)] == [1, 8]
    assert window(100_000, state_size=16) == 100_000
    with pytest.raises(ModelError, match="somewhere"):
        window(max_position_embeddings=None)
    with pytest.raises(
        ModelError,
        match=r"has 8 positions \(n_positions in somewhere/config.json\), not 9; leave",
    ):
        window(9, n_positions=8)


def test_weight_files_follow_the_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    whole = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}})
    index.write_text(whole)
    assert [file.name for file in checkpoint.weight_files(folder)] == ["model-1.safetensors"]
    missing = whole.replace('"b": "model-1', '"b": "model-2')
    for text, reason in (
        (missing, r"model-2\.safetensors is missing though"),
        ("{}", "not an index"),
    ):
        index.write_text(text)
        with pytest.raises(ModelError, match=reason):
            checkpoint.weight_files(folder)


@pytest.mark.parametrize("chunk", [1 << 20, 100])
def test_digest_is_of_the_content(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """The same folder elsewhere has the same digest; other weights, another configuration or tokenizer have not."""
    monkeypatch.setattr(
        checkpoint, "CHUNK", chunk
    )  # the small one makes these weights count as large
    original = checkpoint.digest(folder, "t")
    assert original == checkpoint.digest(SMALLEST, "t")
    assert original != checkpoint.digest(folder, "u")
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    changed = checkpoint.digest(folder, "t")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("1e-05", "1e-06"))
    assert len({original, changed, checkpoint.digest(folder, "t")}) == 3


BASE = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
WORDS = (
    "the",
    "miller",
    "of",
    "wenna",
    "hid",
    "seven",
    "amber",
    "jars",
    "under",
    "old",
    "bell",
    "tower",
    "A",
    "B",
)
LLAMA = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
SPLIT_TEXTS = (
    *(
        "the old bell",
        " the old bell",
        "  two  spaces ",
        "Answer: A\n\nB",
        "é zebra 12",
        " A",
        " ",
        "",
        "\n",
    ),
    *("\nthe bell", "the ", "A<s>B", "\U0001f469"),
)


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two tiny SentencePiece models of an invented text, by their kind."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    pytest.importorskip("google.protobuf")
    draw, folder = random.Random(1), tmp_path_factory.mktemp("spm")
    lines = [" ".join(draw.choices(WORDS, k=12)) + "." for _ in range(800)]
    sizes = {"vocab_size": 400, "hard_vocab_limit": False, "minloglevel": 2}
    ids = {"byte_fallback": True, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    spaces = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    for kind in ("bpe", "unigram"):
        prefix = str(folder / kind)
        trainer.train(
            sentence_iterator=iter(lines),
            model_prefix=prefix,
            model_type=kind,
            **sizes,
            **ids,
            **spaces,
        )
    return {kind: (folder / f"{kind}.model").read_bytes() for kind in ("bpe", "unigram")}


def model(folder: Path, content: bytes, config: dict[str, Any] | None) -> Path:
    """The smallest bundled model with another tokenizer, whose tokens mean nothing to it."""
    shutil.copytree(BASE, folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.model").write_bytes(content)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_converted_tokenizer_splits_as_the_original(
    spelled: dict[str, bytes], tmp_path: Path
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = model(tmp_path / "model", spelled["bpe"], LLAMA)
    tokenizer = HfTokenizer(folder)
    original = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.cut) == (1, 2, None)
    encoded = tokenizer.encode(SPLIT_TEXTS, special=True)
    for text, tokens in zip(SPLIT_TEXTS, encoded, strict=True):
        if "<s>" not in text and text != " ":
            assert tokens.tolist() == original.encode(text.removeprefix(" ")), text
    assert tokenizer_files(folder)[0].name == "tokenizer.model"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert [tokens.tolist() for tokens in encoded] == theirs(list(SPLIT_TEXTS)).input_ids


OTHERWISE = "'the old bell' .* token 0 .* not \\['▁the', '▁old'"


def test_a_conversion_that_splits_otherwise_is_an_error_with_an_example(
    spelled: dict[str, bytes], tmp_path: Path
) -> None:
    """A class made for byte pairs takes a unigram model all the same."""
    tokenizer = HfTokenizer(model(tmp_path / "model", spelled["unigram"], LLAMA))
    with pytest.raises(ModelError, match=OTHERWISE):
        tokenizer.encode(["the old bell"], special=True)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_conversion_without_a_class_splits_as_the_original_or_is_an_error(
    kind: str, spelled: dict[str, bytes], tmp_path: Path
) -> None:
    """Before transformers 5.24 no space is put in front where no class is named."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = model(tmp_path / "model", spelled[kind], None)
    original = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokens = []
    refused = ""
    try:
        tokens = HfTokenizer(folder).encode(["the old bell"], special=True)[0].tolist()
    except ModelError as error:
        refused = str(error)
    assert tokens == original.encode("the old bell") or re.search(OTHERWISE, refused)


def test_a_run_checks_its_texts(spelled: dict[str, bytes], tmp_path: Path) -> None:
    def run(kind: str) -> Run:
        folder, data = model(tmp_path / kind, spelled[kind], LLAMA), write_mmlu(tmp_path / "data")
        return evaluate(
            model=folder,
            data=data,
            protocols=["mmlu/original"],
            out=tmp_path / f"{kind}-run",
            limit=1,
        )

    assert run("bpe").manifest.complete
    with pytest.raises(ModelError, match="differently from SentencePiece"):
        run("unigram")


def test_the_digest_is_that_of_the_file_without_a_tokenizer_json(
    spelled: dict[str, bytes], tmp_path: Path
) -> None:
    first, second = (
        load_model(model(tmp_path / kind, spelled[kind], LLAMA)) for kind in ("bpe", "unigram")
    )
    again = load_model(model(tmp_path / "again", spelled["bpe"], LLAMA))
    assert first.digest == again.digest != second.digest
    assert np.array_equal(
        *(each.tokenizer.encode(["A bell"], special=True)[0] for each in (first, again))
    )
    folder = tmp_path / "model"
    shutil.copytree(BASE, folder)
    (folder / "tokenizer.model").write_bytes(spelled["bpe"])
    assert HfTokenizer(folder).digest == HfTokenizer(BASE).digest


@pytest.mark.parametrize("missing", ["sentencepiece", "google.protobuf"])
def test_missing_packages_are_named_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "choicewise.models.local.files.find_spec", lambda name: None if name == missing else True
    )
    folder = model(tmp_path / "model", b"anything", LLAMA)
    with pytest.raises(ModelError, match=r"needs .*; run: pip install .* '\.\[sentencepiece\]'"):
        HfTokenizer(folder)


def test_a_damaged_file_is_an_error(spelled: dict[str, bytes], tmp_path: Path) -> None:
    folder = model(tmp_path / "model", spelled["bpe"][:1000], LLAMA)
    with pytest.raises(ModelError, match="tokenizer.model can't be converted"):
        HfTokenizer(folder)


def published(shared_data: Path, name: str, folder: Path) -> tuple[HfTokenizer, HfTokenizer]:
    """The tokenizer of a small real model, as its ``tokenizer.json`` says and as its other file is converted."""
    own = shared_data / "models" / name
    shutil.copytree(own, folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(LLAMA))
    return HfTokenizer(own), HfTokenizer(folder)


def test_a_real_file_is_converted_to_what_its_model_reads_or_refused(
    shared_data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sentencepiece")
    own, converted = published(shared_data, "stories260K", tmp_path / "model")
    texts = ["Once upon a time", "Answer: A\n\nB", "é", 'Lily said, "Hello!" 12.\n\nThe  end ']
    left, right = (each.encode(texts, special=False) for each in (own, converted))
    assert all(map(np.array_equal, left, right))
    # A vocabulary without bytes: what it can't spell is an unknown token, which the conversion leaves out.
    _, converted = published(shared_data, "babyllama-tok105", tmp_path / "lossy")
    with pytest.raises(ModelError, match=r"token 10 on \['B'\], not \['<unk>', 'B'\]"):
        converted.encode(["Answer: A\n\nB"], special=True)
