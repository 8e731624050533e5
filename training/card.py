"""The model card that goes beside each set of weights."""

from collections.abc import Mapping

from corpus import DRAWN, FACT, LETTER, PROSE
from recipe import Lessons, Recipe

CARD = """# {name}

A Llama-architecture causal language model of {millions:.2f} million parameters, trained from nothing for Choicewise
so that every multiple-choice protocol can be tried on a CPU in seconds. It is a test object and no use for
anything else. {aim}

| | |
|---|---|
| tokenizer | {kind}, {vocabulary} tokens, {bos} |
| shape | {layers} layers, width {width}, {heads} heads, feed-forward {inner}, tied embeddings |
| window | {window} tokens |
| weights | float32, safetensors |
| training | {steps} steps of {batch} tokens, {tokens:.1f} million tokens in one pass, seed {seed} |
| rows | {short} tokens, at every tenth step {long} |
| optimizer | Muon for the matrices, AdamW for the rest, peak learning rate {peak:g}, cosine schedule |
| time | {minutes:.1f} minutes on one CPU core |
| val split, 91 questions | {cloze:.1%} by cloze (`mmlu/cloze:sum`), {letters:.1%} by letters (`mmlu/original`) |

## Data

Text made by `training/corpus.py` from the declared facts of the Merrowick Isles, an invented place. Nothing from the
web, from people or from another model is in it. Of the documents are

{documents}

A fact counts {fact:g} in the loss, whether it ends a sentence or answers a question, a lettered answer {letter:g},
the words around a fact in prose {prose:g}, and the rest of an exam {drawn:g}: which question is asked and which false
choices stand beside the answer is drawn at random, and no model could foresee it.

## What it was taught inside

{lessons}

Loss at the end, nats a token, weighted as above, mean of the last 50 steps: {reached:.3f}.

## How the settings were chosen

By hand, in some ten runs, from what models scored on the val split, on recalling answers and on finding letters in
training text. The test split was scored when everything was settled. Settings differ between the four models on
purpose, so that they know different things: what one of them scores says nothing about its tokenizer or its size.

## What the scores on Merrowick mean

**The model was trained on questions about the same facts the benchmark asks for.** Every fact of the benchmark is
stated in the training text and asked in it, in four wordings of its own and with false choices drawn anew. What it
has not seen is any benchmark question: those use four other wordings for each relation, and a test checks that
none of them occurs in the training text. A score here thus measures facts recalled under a new wording, in a
format met in training or not. It says nothing about reasoning, and nothing about models trained elsewhere.

## Limits

It knows no English beyond these wordings. Long prompts are less in its experience than short ones. Do not compare its
scores with those of models that were not trained on this world.

## Made again with

`python training/train.py`, which needs the `hf` extra. It keeps the tokenizer that is here, because unigram pieces
are not learnt quite the same twice; with it the run is seeded and single-threaded, so that the same machine and
library versions should give the same weights. Another processor may round differently. Apache License 2.0.
"""

READ = {
    "prose": "short paragraphs that state the facts",
    "cloze": "exam papers of questions and the answers' texts, no choices shown",
    "letters": "exam papers with lettered choices, answered by letter, in two layouts",
    "shared lists": "lists of lettered choices with several questions each, answered by letter",
    "listed answers": "exam papers with lettered choices, answered by the choice's text",
}

TAUGHT = """Text alone does not teach a model this small to answer by letter: it has to recall the answer, know which
letter stands before each choice, and look for the choice that it recalled, and none of these helps before all are
there. Each of them is taught by a loss of its own (`training/lessons.py`), which counts half as much as the next token:

| lesson | loss at the end |
|---|---|
| after layer {recall}, the token before an answer names the words of the answer | {recall_loss:.3f} |
| in layer {label}, a head attends from the tokens of a choice to its letter | {label_loss:.3f} |
| in layer {match}, a head attends from the token before a letter to the choice it stands for | {match_loss:.3f} |

Layers count from 0; losses are mean negative log-likelihoods in nats."""

NOT_TAUGHT = (
    "Nothing: it was trained on the next token alone. "
    "The letters it read are not enough for it to find one."
)


def card(
    recipe: Recipe,
    parameters: int,
    reached: Mapping[str, float],
    scores: Mapping[str, float],
    minutes: float,
) -> str:
    """The card's text.  ``reached``: mean losses at the end; ``scores``: shares of the val split."""
    read = sum(recipe.reads.values())
    return CARD.format(
        **vars(recipe) | {"lessons": _lessons(recipe.lessons, reached)},
        **scores,
        bos="adds BOS" if recipe.adds_bos else "adds no BOS",
        millions=parameters / 1e6,
        tokens=recipe.steps * recipe.batch / 1e6,
        minutes=minutes,
        reached=reached["tokens"],
        documents="\n".join(
            f"- {share / read:.0%} {READ[kind]}" for kind, share in recipe.reads.items()
        ),
        drawn=DRAWN,
        prose=PROSE,
        fact=FACT,
        letter=LETTER,
    )


def _lessons(lessons: Lessons | None, reached: Mapping[str, float]) -> str:
    if lessons is None:
        return NOT_TAUGHT
    losses = {f"{name}_loss": reached[name] for name in ("recall", "label", "match")}
    return TAUGHT.format(**vars(lessons), **losses)
