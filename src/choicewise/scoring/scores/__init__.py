"""The scores by name: how token log-probabilities become one number per choice.

S is the sum of the scored tokens' log-probabilities in nats.  To add a score, write the function in the file of its
noun and declare it here.
"""

from __future__ import annotations

from functools import partial

from choicewise.scoring.scores import conditional, means, tokens, trie
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
    "word_mean": Score(means.word_mean, "S / words", "the unit of lm-evaluation-harness word_perplexity"),
    "token_power_0.5": Score(partial(means.token_power, alpha=0.5), "S / tokens^0.5", "Wu et al. 2016 (GNMT)"),
    "gnmt_0.6": Score(partial(means.gnmt, alpha=0.6), "S / ((5 + tokens) / 6)^0.6", "Wu et al. 2016 (GNMT)"),
    "arithmetic_mean": Score(tokens.arithmetic_mean, "log mean P(token)", "Tsvilodub et al. 2024"),
    "harmonic_mean": Score(tokens.harmonic_mean, "log harmonic mean P(token)", "lm-scorer hmean"),
    "least_likely": Score(tokens.least_likely, "min log P(token)", "the weakest link of the continuation"),
    "first_token": Score(tokens.first, "log P(first token)", "MediaPipe firstTokenOnly"),
    "first_divergent": Score(
        trie.first_divergent, "log P(first token not shared by all choices)", "nanochat core_eval's span start"
    ),
    "greedy": Score(tokens.greedy, "1 if every token is the most likely one", "lm-evaluation-harness exact_match"),
    "constrained_greedy": Score(
        trie.constrained_greedy, "1 if greedy decoding among the choices yields it", "guidance select"
    ),
    "locally_renormalised": Score(
        trie.locally_renormalised,
        "Σ log P(token) / Σ P(sibling tokens)",
        "decoding under a grammar: outlines, guidance",
    ),
    "dc_pmi": Score(
        conditional.pmi, "S(context) - S(domain premise)", "Holtzman et al. 2021 (DC-PMI)", conditional=True
    ),
    "normalised_pmi": Score(
        conditional.normalised_pmi, "PMI / -S(null context)", "Cho et al. 2025 (ANPMI)", conditional=True
    ),
    "domain_conditional": Score(
        conditional.domain_conditional, "S(domain premise)", "Holtzman et al. 2021, baseline", conditional=True
    ),
}
