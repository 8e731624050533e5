"""Tokenizers that come as SentencePiece files alone: converted, held against the original, refused if they differ."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from choicewise import evaluate
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local.tokenizer import HfTokenizer, tokenizer_files
from choicewise.results.run import Run
from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

BASE = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
WORDS = ("the", "miller", "of", "wenna", "hid", "seven", "amber", "jars", "under", "old", "bell", "tower", "A", "B")
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
TEXTS = (
    *("the old bell", " the old bell", "  two  spaces ", "Answer: A\n\nB", "é zebra 12", " A", " ", "", "\n"),
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
        trainer.train(sentence_iterator=iter(lines), model_prefix=prefix, model_type=kind, **sizes, **ids, **spaces)
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


def test_a_converted_tokenizer_splits_as_the_original(spelled: dict[str, bytes], tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = model(tmp_path / "model", spelled["bpe"], LLAMA)
    tokenizer = HfTokenizer(folder)
    original = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.cut) == (1, 2, None)
    encoded = tokenizer.encode(TEXTS, special=True)
    for text, tokens in zip(TEXTS, encoded, strict=True):
        if "<s>" not in text and text != " ":
            assert tokens.tolist() == original.encode(text.removeprefix(" ")), text
    assert tokenizer_files(folder)[0].name == "tokenizer.model"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert [tokens.tolist() for tokens in encoded] == theirs(list(TEXTS)).input_ids


@pytest.mark.parametrize(("kind", "config"), [("unigram", LLAMA), ("bpe", None), ("unigram", None)])
def test_a_conversion_that_splits_otherwise_is_an_error_with_an_example(
    kind: str, config: dict[str, Any] | None, spelled: dict[str, bytes], tmp_path: Path
) -> None:
    """A class made for byte pairs takes a unigram model all the same; without any class no space is put in front."""
    tokenizer = HfTokenizer(model(tmp_path / "model", spelled[kind], config))
    with pytest.raises(ModelError, match=r"splits 'the old bell' otherwise .* token 0 .* not \['▁the', '▁old'"):
        tokenizer.encode(["the old bell"], special=True)


def test_a_run_checks_its_texts(spelled: dict[str, bytes], tmp_path: Path) -> None:
    def run(kind: str) -> Run:
        folder, data = model(tmp_path / kind, spelled[kind], LLAMA), write_mmlu(tmp_path / "data")
        return evaluate(model=folder, data=data, protocols=["mmlu/original"], out=tmp_path / f"{kind}-run", limit=1)

    assert run("bpe").manifest.complete
    with pytest.raises(ModelError, match="otherwise than SentencePiece itself"):
        run("unigram")


def test_the_digest_is_that_of_the_file_without_a_tokenizer_json(spelled: dict[str, bytes], tmp_path: Path) -> None:
    first, second = (load_model(model(tmp_path / kind, spelled[kind], LLAMA)) for kind in ("bpe", "unigram"))
    again = load_model(model(tmp_path / "again", spelled["bpe"], LLAMA))
    assert first.digest == again.digest != second.digest
    assert np.array_equal(*(each.tokenizer.encode(["A bell"], special=True)[0] for each in (first, again)))
    folder = tmp_path / "model"
    shutil.copytree(BASE, folder)
    (folder / "tokenizer.model").write_bytes(spelled["bpe"])
    assert HfTokenizer(folder).digest == HfTokenizer(BASE).digest


@pytest.mark.parametrize("missing", ["sentencepiece", "google.protobuf"])
def test_without_its_packages_the_message_says_how_to_install_them(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.models.local.files.find_spec", lambda name: None if name == missing else True)
    folder = model(tmp_path / "model", b"anything", LLAMA)
    with pytest.raises(ModelError, match=r"is missing; run: pip install .* '\.\[sentencepiece\]'"):
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


def test_a_real_file_is_converted_to_what_its_model_reads_or_refused(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    own, converted = published(shared_data, "stories260K", tmp_path / "model")
    texts = ["Once upon a time", "Answer: A\n\nB", "é", 'Lily said, "Hello!" 12.\n\nThe  end ']
    left, right = (each.encode(texts, special=False) for each in (own, converted))
    assert all(map(np.array_equal, left, right))
    # A vocabulary without bytes: what it can't spell is an unknown token, which the conversion leaves out.
    _, converted = published(shared_data, "babyllama-tok105", tmp_path / "lossy")
    with pytest.raises(ModelError, match=r"token 10 and those after it are \['B'\], not \['<unk>', 'B'\]"):
        converted.encode(["Answer: A\n\nB"], special=True)
