"""The scores by name: how token log-probabilities become one number per choice.

S is the sum of the scored tokens' log-probabilities in nats.  To add a score, write the function in the file of its
noun and declare it here.
"""

from __future__ import annotations

from choicewise.scoring.scores import conditional, means
from choicewise.scoring.scores.score import Score

SCORES: dict[str, Score] = {
    "sum": Score(means.total, "S", "lm-evaluation-harness acc; Hendrycks et al. 2021"),
    "token_mean": Score(means.token_mean, "S / tokens", "Brown et al. 2020 (GPT-3), section 2.4"),
    "byte_mean": Score(means.byte_mean, "S / bytes of the scored tokens", "Gao 2021, blog.eleuther.ai"),
    "byte_mean_bare": Score(
        means.byte_mean_bare, "S / bytes without the leading space", "lm-evaluation-harness acc_bytes (PR 3368)"
    ),
    "char_mean": Score(means.char_mean, "S / characters with the leading space", "Gu et al. 2024 (OLMES) acc_per_char"),
    "char_mean_bare": Score(
        means.char_mean_bare, "S / characters without the leading space", "lm-evaluation-harness acc_norm"
    ),
    "pmi": Score(
        conditional.pmi, "S(context) - S(null context)", "Brown et al. 2020; OLMES acc_uncond", conditional=True
    ),
}
