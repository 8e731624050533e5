"""The ways of asking a model about an option, and what each of them can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SUMS = (
    *("sum", "token_mean", "byte_mean", "byte_mean_bare", "char_mean", "char_mean_bare", "word_mean"),
    *("token_power_0.5", "gnmt_0.6"),
)
"""Scores that need no more than a continuation's log-likelihood and its length."""

TOKENWISE = ("arithmetic_mean", "harmonic_mean", "least_likely", "first_token", "greedy")
"""Scores that look at a continuation's tokens one by one."""

ACROSS = ("first_divergent", "constrained_greedy", "locally_renormalised")
"""Scores that set the choices of an item against each other, as continuations of one context."""

CONDITIONAL = ("pmi", "dc_pmi", "normalised_pmi", "domain_conditional")
"""Scores that set a continuation against the one after a null context."""

SELECT = (
    *("token_length_normalized", "token_length_normalized_with_prompt", "greedy_token_selection"),
    "unconditional_likelihood_normalized",
)
"""What SGLang's select compares: scores of what the reading of that name observes, and of nothing else."""

OVER_CHAINS = ("marginal", "vote")
"""What is made of an option's probabilities after several chains of thought."""

SCORES = (*SUMS, *TOKENWISE, *ACROSS, *CONDITIONAL)
"""The names in :mod:`choicewise.scoring.scores`, which stands to the right of here; a test holds the two together."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A way of asking.  ``scores``: what can be made of what it sees; ``none`` where it gives the number itself.

    ``lines``: fewest and most continuations of one choice, one a line of the axis ``continuation``; (1, 1) takes the
    axis as one text, newlines and all.  ``proposal``: whether a choice must be named by the axis of that name, because
    the continuations don't.
    """

    about: str
    scores: tuple[str, ...]
    lines: tuple[int, int] = (1, 1)
    proposal: bool = False

    @property
    def several(self) -> bool:
        """Whether a choice has several continuations."""
        return self.lines != (1, 1)


READINGS: Mapping[str, Reading] = MappingProxyType(
    {
        "loglikelihood": Reading("log P(continuation | context), token by token, in one forward pass", SCORES),
        "masked": Reading("the model's own loss with the labels outside the option at -100", (*SUMS, *CONDITIONAL)),
        "generate": Reading("greedy text after the context, and its tokens' scores", (*SUMS, *TOKENWISE, "none")),
        "surprisal": Reading(
            "log P of every token that holds a byte of the continuation, the two texts encoded as one", SCORES
        ),
        "surprisal-package": Reading(
            "the same as the package surprisal counts it: a BOS before the tokenizer's own, P(EOS) := 0", SUMS
        ),
        "select": Reading("log P of the tokens that SGLang's select scores, its token healing included", SELECT),
        "spellings": Reading("log of the summed P of several spellings of the option's label", ("sum",), lines=(1, 20)),
        "yes-no": Reading("log P(first line | context, option) - log P(second line | ·)", ("sum",), (2, 2), True),
        "rating": Reading("expected rating, the lines being its labels from the lowest up", ("sum",), (2, 20), True),
        "noisy-channel": Reading("log P(question | proposal of the option)", (*SUMS, *TOKENWISE), proposal=True),
        "chain-of-thought": Reading("P(continuation | context, chain, proposal) over sampled chains", OVER_CHAINS),
        "embedding": Reading("cosine of the last token's last hidden states of context and continuation", ("none",)),
    }
)
"""Every reading by the name it has on the axis ``reading``."""

CHOOSING = ("argmax", "greedy-match")
"""Decisions that are made from scores."""

EXTRACTIONS = ("simple-evals@f517a91", "simple-evals-multilingual@f517a91", "opencompass@14ca958")
"""Published rules that find an option's letter in generated text, by the commit they were read at."""
