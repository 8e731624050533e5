"""The model card that goes beside each set of weights."""

from recipe import Recipe

CARD = """# {name}

A Llama-architecture causal language model of {millions:.2f} million parameters, trained from nothing for Choicewise
so that every multiple-choice protocol can be tried on a CPU in seconds. It is a test object and no use for
anything else.

| | |
|---|---|
| tokenizer | {kind}, {vocabulary} tokens, {bos} |
| shape | {layers} layers, width {width}, {heads} heads, feed-forward {inner}, tied embeddings |
| window | {window} tokens |
| weights | float32, safetensors |
| training | {steps} steps of {batch} tokens, {tokens:.1f} million tokens in one pass, seed {seed} |
| rows | {short} tokens, {when} {long} |
| optimizer | Muon for the matrices, AdamW for the rest, cosine schedule |
| time | {minutes:.1f} minutes on one CPU core |
| loss at the end | {loss:.3f} nats a token, weighted as below, mean of the last twentieth of the steps |

## Data

Text made by `training/corpus.py` from the declared facts of the Merrowick Isles, an invented place: short
paragraphs that state the facts, and exam papers about them. The exam papers come in four formats: question and
answer text; lettered choices answered by letter, in two layouts; lettered choices answered by their text. Nothing
from the web, from people or from another model is in it.

A fact counts {fact:g} in the loss, whether it ends a sentence or answers a question, a lettered answer {letter:g},
the words around a fact in prose {prose:g}, and the rest of an exam {drawn:g}: which question is asked and which false
choices stand beside the answer is drawn at random, and no model could foresee it. The first part of the training
is mostly prose, the rest mostly exams.

## What the scores on Merrowick mean

**The model was trained on questions about the same facts the benchmark asks for.** Every fact of the benchmark is
stated in the training text and asked in it, in four wordings of its own and with false choices drawn anew. What it
has not seen is any benchmark question: those use four other wordings for each relation, and a test checks that
none of them occurs in the training text. A score here thus measures facts recalled under a new wording, in a
format met in training. It says nothing about reasoning, and nothing about models trained elsewhere.

## Limits

It knows no English beyond these wordings. Letters are the hardest thing asked of it: a model this small, trained
this briefly, recalls facts well before it can find their letters in a list, so expect protocols that compare letters
to come out near chance. Long prompts are less in its experience than short ones. Do not compare its scores with
those of models that were not trained on this world.

## Made again with

`python training/train.py`, which needs the `hf` extra. It keeps the tokenizer that is here, because unigram pieces
are not learnt quite the same twice; with it the run is seeded and single-threaded, so that the same machine and
library versions should give the same weights. Another processor may round differently. Apache License 2.0.
"""


def card(
    recipe: Recipe, parameters: int, loss: float, minutes: float, weights: tuple[float, float, float, float]
) -> str:
    """The card's text; `weights` are the loss weights of drawn text, prose, facts and letters."""
    drawn, prose, fact, letter = weights
    return CARD.format(
        **vars(recipe),
        when="at every tenth step" if recipe.spread else "in the last twelfth of the steps",
        bos="adds BOS" if recipe.adds_bos else "adds no BOS",
        millions=parameters / 1e6,
        tokens=recipe.steps * recipe.batch / 1e6,
        minutes=minutes,
        loss=loss,
        drawn=drawn,
        prose=prose,
        fact=fact,
        letter=letter,
    )
