"""Train the bundled models: `python training/train.py [FOLDER]`, about twenty minutes on two cores.

Two processes with one thread each share the four models; one thread keeps the sums in one order, which is meant to
give the same weights again on the same machine, with the same versions and the tokenizers already in the folder.
"""

import itertools
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from card import card
from corpus import DRAWN, FACT, LETTER, PROSE, documents, text
from recipe import LANES, Recipe
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from vocabulary import bpe, byte_level, finished, unigram

MODELS = Path(__file__).parents[1] / "src/choicewise/bundled/models"
TOKENIZER_DOCUMENTS = 4000
WARMUP, TAIL = 0.04, 0.08  # shares of the steps that warm up, and that are the end
OFTEN = 10  # steps from one batch of long rows to the next, where they are spread
EARLY, LATE, TURN = 0.25, 0.65, 0.45  # share of exam papers before and after the turn: first learn, then be examined
PEAK = 4e-3  # learning rate at its highest


def tokenizer_for(recipe: Recipe, place: Path) -> PreTrainedTokenizerFast:
    """The tokenizer already in place, else one learnt from the first documents of a stream of its own.

    One in place is kept because the unigram learner breaks ties in an order that changes from run to run, and
    other pieces would make other weights.
    """
    file = place / "tokenizer.json"
    if file.exists():
        return finished(Tokenizer.from_file(str(file)), recipe.adds_bos, recipe.window)
    texts = [text(document) for document in itertools.islice(documents("tokenizer", LATE), TOKENIZER_DOCUMENTS)]
    if recipe.kind == "bytes":
        tokenizer = byte_level()
    else:
        tokenizer = (bpe if recipe.kind == "BPE" else unigram)(texts, recipe.vocabulary)
    return finished(tokenizer, recipe.adds_bos, recipe.window)


def stream(recipe: Recipe, tokenizer: Tokenizer, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`length` token ids of training text and their loss weights; each document starts with the BOS token.

    A token takes the weight of the piece its last character lies in.
    """
    bos = tokenizer.token_to_id("<s>")
    early, late = (documents(f"train-{recipe.seed}-{share}", share) for share in (EARLY, LATE))
    ids: list[int] = []
    weights: list[float] = []
    while len(ids) < length:
        batch = list(itertools.islice(early if len(ids) < TURN * length else late, 200))
        encodings = tokenizer.encode_batch([text(document) for document in batch], add_special_tokens=False)
        for document, encoding in zip(batch, encodings, strict=True):
            by_character = np.repeat([weight for _, weight in document], [len(piece) for piece, _ in document])
            ids += [bos, *encoding.ids]
            weights += [0.0, *by_character[[end - 1 for _, end in encoding.offsets]]]
    return torch.tensor(ids[:length]), torch.tensor(weights[:length], dtype=torch.float32)


def rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: a linear rise, then a cosine down to a fiftieth."""
    done = step / steps
    if done < WARMUP:
        return (step + 1) / (WARMUP * steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices, AdamW for the embedding and the norms."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=PEAK, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def fit(model: LlamaForCausalLM, recipe: Recipe, ids: torch.Tensor, weights: torch.Tensor) -> float:
    """Train in one pass over the stream; returns the weighted mean loss of the last twentieth, in nats a token."""
    tail = int(recipe.steps * (1 - TAIL))
    losses = []
    chosen = optimizers(model)
    for step in range(recipe.steps):
        part = slice(step * recipe.batch, (step + 1) * recipe.batch)
        is_long = step % OFTEN == 0 if recipe.spread else step >= tail
        rows = (-1, recipe.long if is_long else recipe.short)
        row_ids, row_weights = ids[part].view(rows), weights[part].view(rows)[:, 1:]
        logits = model(input_ids=row_ids, use_cache=False).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), row_ids[:, 1:].flatten(), reduction="none")
        loss = (each * row_weights.flatten()).sum() / row_weights.sum()
        for optimizer in chosen:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = PEAK * rate(step, recipe.steps)
            optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"{recipe.name} step {step} loss {losses[-1]:.3f}", flush=True)
    last = losses[-max(1, recipe.steps // 20) :]
    return sum(last) / len(last)


def train(recipe: Recipe, folder: Path) -> None:
    """Train one model and save weights, configuration, tokenizer and card."""
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    torch.use_deterministic_algorithms(True)
    started = time.monotonic()
    place = folder / recipe.name
    tokenizer = tokenizer_for(recipe, place)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=recipe.window,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    loss = fit(model, recipe, *stream(recipe, tokenizer.backend_tokenizer, recipe.steps * recipe.batch))
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    minutes = (time.monotonic() - started) / 60
    (place / "README.md").write_text(
        card(recipe, model.num_parameters(), loss, minutes, (DRAWN, PROSE, FACT, LETTER)), encoding="utf-8"
    )
    print(f"{recipe.name} done: loss {loss:.3f}, {minutes:.1f} minutes", flush=True)


def lane(recipes: tuple[Recipe, ...], folder: Path) -> None:
    """Train several models one after another."""
    for recipe in recipes:
        train(recipe, folder)


def main(folder: Path, share: float = 1.0) -> None:
    """Train all four; a `share` below one shortens every run, for trying a change out."""
    with ProcessPoolExecutor(len(LANES), mp_context=get_context("spawn")) as pool:
        jobs = []
        for recipes in LANES:
            shortened = tuple(replace(recipe, steps=max(1, int(recipe.steps * share))) for recipe in recipes)
            jobs.append(pool.submit(lane, shortened, folder))
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else MODELS, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
