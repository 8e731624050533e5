"""Letters along the thoughts of a real network, held against plain lines of transformers."""

import shutil
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from choicewise import evaluate
from choicewise.extensions.analyses.along import along_thoughts
from choicewise.protocols.readings import ALONG
from tests.helpers.thinking import along, quiz
from tests.models.test_open_thoughts import MODEL, NOT_OPENED, TAIL, TEMPLATES

OPEN, CLOSING = "Qwen3.5, thinking unless false", "\n</think>\n\n"
GOLDS, LIMIT = [0, 3], 13


@pytest.mark.costly("plain lines compute every token anew from all before it")
def test_letters_along_a_thought_are_what_plain_lines_compute(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATES[OPEN])
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    def total(context: list[int], scored: list[int]) -> float:
        with torch.no_grad():
            logits = network(torch.tensor([context + scored])).logits[0].double()
        rows = torch.log_softmax(logits, -1)
        return sum(
            float(rows[len(context) + place - 1, token]) for place, token in enumerate(scored)
        )

    protocol = along(
        2,
        thought_tokens=LIMIT,
        boundary="separate",
        proposal="The answer is",
        continuation=" {letter}",
    )
    run = evaluate(
        model=str(folder), data=quiz(GOLDS), protocols={"p": protocol}, out=tmp_path / "run"
    )
    rows: list[dict[str, Any]] = run.observations().to_pylist()
    for item in run.tables.items.to_pylist():
        options = "".join(
            f"{letter}. {text}\n" for letter, text in zip("ABCD", item["choices"], strict=True)
        )
        own = [row for row in rows if row["item"] == item["item"]]
        (text,) = (row for row in own if row["choice"] == -1)
        asked = {"role": "user", "content": f"{item['question']}\n{options}Answer:"}
        prompt = tokenizer.apply_chat_template([asked], add_generation_prompt=True, tokenize=False)
        assert (prompt + CLOSING).endswith(
            TAIL + NOT_OPENED
        )  # of a model that is told not to think
        thought = [int(token) for token in text["tokens"][:LIMIT]]
        assert text["forced"]
        assert "</think>" not in tokenizer.decode(thought)
        for part, share in enumerate(ALONG.values()):
            kept = thought[: ceil(share * LIMIT)]
            broken = share < 1 and tokenizer.decode(kept).endswith("\n")
            context = ids(prompt) + kept + ids(f"{CLOSING[broken:]}The answer is")
            if not part:
                context = ids(f"{prompt}{CLOSING}The answer is")
            for choice, letter in enumerate("ABCD"):
                (row,) = (row for row in own if (row["choice"], row["part"]) == (choice, part))
                assert sum(row["logprobs"]) == pytest.approx(
                    total(context, ids(f" {letter}")), abs=1e-4
                )
                assert part == 0 or row["thought_tokens"] == len(kept)
    (found,) = along_thoughts(run)
    assert (found.ended, found.n, found.thought_tokens) == ("limit", len(GOLDS), LIMIT)
