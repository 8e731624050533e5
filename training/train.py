"""Train the bundled models: `python training/train.py [FOLDER] [--share S]`, about twenty minutes on two cores.

Two processes with one thread each share the four models; one thread keeps the sums in one order, which is meant to
give the same weights again on the same machine, with the same versions and the tokenizers already in the folder.
"""

import argparse
import itertools
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch
from card import card
from corpus import documents, text
from lessons import losses
from probe import probed
from recipe import LANES, Recipe
from rows import Words, rows, stream
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from vocabulary import bpe, byte_level, finished, unigram

MODELS = Path(__file__).parents[1] / "src/choicewise/bundled/models"
TOKENIZER_DOCUMENTS = 4000
TOKENIZER_READS = {"prose": 0.35, "cloze": 0.2, "letters": 0.32, "listed answers": 0.13}
WARMUP = 0.04  # share of the steps in which the learning rate rises
OFTEN = 10  # steps from one batch of long rows to the next
EMBEDDED, OUTPUT = (
    0.1,
    0.5,
)  # deviation of the embedding at first, and what a layer's outputs are multiplied by
LESSON = 0.5  # weight of each lesson beside the next token
LAST = 50  # steps whose mean losses stand in the card


def tokenizer_for(recipe: Recipe, place: Path) -> PreTrainedTokenizerFast:
    """The tokenizer already in place, else one learnt from the first documents of a stream of its own.

    One in place is kept because the unigram learner breaks ties in an order that changes from run to run, and
    other pieces would make other weights.
    """
    file = place / "tokenizer.json"
    if file.exists():
        return finished(Tokenizer.from_file(str(file)), recipe.adds_bos, recipe.window)
    source = documents("tokenizer", TOKENIZER_READS)
    texts = [text(document) for document in itertools.islice(source, TOKENIZER_DOCUMENTS)]
    if recipe.kind == "bytes":
        tokenizer = byte_level()
    else:
        tokenizer = (bpe if recipe.kind == "BPE" else unigram)(texts, recipe.vocabulary)
    return finished(tokenizer, recipe.adds_bos, recipe.window)


def rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: a linear rise, then a cosine down to a fiftieth."""
    done = step / steps
    if done < WARMUP:
        return (step + 1) / (WARMUP * steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def made(config: LlamaConfig) -> LlamaForCausalLM:
    """A new model, whose layers at first add about as much to a token as its embedding is."""
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(std=EMBEDDED)
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.mul_(OUTPUT)
    return model


def optimizers(model: LlamaForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices, AdamW for the embedding and the norms."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=peak, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def fit(model: LlamaForCausalLM, recipe: Recipe, tokenizer: Tokenizer) -> dict[str, float]:
    """Train in one pass; returns the mean losses of the last steps, in nats."""
    chosen = optimizers(model, recipe.peak)
    source, words = stream(recipe, tokenizer), Words(tokenizer)
    history: list[dict[str, float]] = []
    for step in range(recipe.steps):
        length = recipe.long if step % OFTEN == OFTEN - 1 else recipe.short
        reached = losses(model, rows(source, recipe.batch // length, length, words), recipe.lessons)
        for optimizer in chosen:
            optimizer.zero_grad()
        reached.total(LESSON).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = recipe.peak * rate(step, recipe.steps)
            optimizer.step()
        history.append({name: value.item() for name, value in vars(reached).items()})
        if step % LAST == LAST - 1:
            print(f"{recipe.name} step {step + 1}: {_told(_mean(history[-LAST:]))}", flush=True)
    return _mean(history[-LAST:])


def _mean(history: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in history) / len(history) for name in history[0]}


def _told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


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
        initializer_range=0.5 / math.sqrt(recipe.width),
        attn_implementation="watched",
    )
    model = made(config)
    reached = fit(model, recipe, tokenizer.backend_tokenizer)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    minutes = (time.monotonic() - started) / 60
    scores = probed(place)
    print(
        f"{recipe.name} done in {minutes:.1f} minutes; on the val split: {_told(scores)}",
        flush=True,
    )
    (place / "README.md").write_text(
        card(recipe, model.num_parameters(), reached, scores, minutes), encoding="utf-8"
    )


def lane(recipes: tuple[Recipe, ...], folder: Path) -> None:
    """Train several models one after another."""
    for recipe in recipes:
        train(recipe, folder)


def main(folder: Path, share: float) -> None:
    """Train all four; a ``share`` below one shortens every run, for trying a change."""
    with ProcessPoolExecutor(len(LANES), mp_context=get_context("spawn")) as pool:
        jobs = []
        for recipes in LANES:
            shortened = tuple(
                replace(recipe, steps=max(LAST, int(recipe.steps * share))) for recipe in recipes
            )
            jobs.append(pool.submit(lane, shortened, folder))
        for job in jobs:
            job.result()


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description="Train the bundled models.")
    asked.add_argument(
        "folder", nargs="?", type=Path, default=MODELS, help="where the models are written"
    )
    asked.add_argument(
        "--share", type=float, default=1.0, help="of every model's steps, for trying a change"
    )
    chosen = asked.parse_args()
    main(chosen.folder, chosen.share)
