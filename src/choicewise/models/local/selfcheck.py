"""Which compute path is right for this very model: each is compared with the plain one on a probe."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.choice_objection import choice_objection
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.float32_copy import float32_copy
from choicewise.models.local.ladder import Rung, rungs
from choicewise.models.local.path_differences import padded_sums, plain_sums
from choicewise.models.local.probe import BRANCH, position_switch, probe, probe_depth
from choicewise.models.local.score_noise import Sums, largest_difference, noise_of, running_sums
from choicewise.models.local.unpacked_path import PlainPath
from choicewise.models.selfcheck import SelfCheck, Trial
from choicewise.questions import Generation, Sampling, Span

EXACT = 1e-4
"""Nats a token by which a score may always differ in float32; up to ten times that where the noise asks for it."""

WIDER = 4
"""How many times as far from float32 as the plain path a path may be in a 16-bit dtype, once it was exact on a float32
copy: the distances of two right paths differ by up to three times in a probe, most where experts are chosen."""

NARROW = 0.5
"""Nats by which a score may differ in a 16-bit dtype where no float32 copy fits in memory to measure it."""

GENERATED = 3
"""How many tokens a probe generates after its first and its last context."""

SAMPLED = 4
"""The noise is measured on every fourth span of a probe: a batch needs the vocabulary at every position of every
sequence, which would take longer than all the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """A model with the right answers to a probe, and how far from them a path may be (nats)."""

    lm: CausalLM
    spans: list[Span]
    truth: Sums
    floor: float
    tolerance: float
    noise: float

    def judge(self, name: str, rung: Rung, budget: int) -> tuple[Trial, float]:
        """One rung on the probe, and its noise; whatever goes wrong in a fast path is a reason to take another."""
        path = rung(self.lm, budget)
        if isinstance(path, PlainPath):  # the reference: there is nothing better
            return Trial(name, 0.0, None), self.noise
        try:
            sums = self._sums(path)
            generated, wrong_choice = self._generation_difference(path)
            difference = max(largest_difference(sums, self.truth), generated)
        except Exception as error:
            return Trial(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200]), self.noise
        excess = f"differs by {difference:.2g} nats where {self.tolerance:.2g} are allowed"
        reasons = [path.objection(), wrong_choice, None if difference <= self.tolerance else excess]
        return Trial(name, difference, "; ".join(filter(None, reasons)) or None), noise_of(sums, self.truth)

    def _sums(self, path: ComputePath) -> Sums:
        """What the path says of the probe; NaN where it says nothing."""
        sums = [np.full(len(span.continuation), np.nan) for span in self.spans]
        for index, scores in path.score(self.spans):
            sums[index] = running_sums(scores.logprobs)
        return sums

    def _generation_difference(self, path: ComputePath) -> tuple[float, str | None]:
        """The largest difference of the scores of generated tokens from the plain path's, and a wrong token, if any.

        That is a token, or a rank, that the plain path's logits do not give within the tolerance.
        """
        longest = self.lm.window if position_switch(self.lm) is None else max(span.inputs for span in self.spans)
        contexts = [span.context for span in self.spans if span.inputs + GENERATED <= longest]
        contexts = contexts[:: max(1, len(contexts) - 1)]
        ways = (None, Sampling(b"probe"))
        generations = [Generation(context, GENERATED, (), way) for context in contexts for way in ways]
        largest, wrong = 0.0, list[str]()
        for index, scores in path.generate(generations, (), [b""] * self.lm.vocabulary):
            asked = generations[index]
            logits = plain.logits(self.lm.model, self.lm.vocabulary, asked.context, scores.tokens)
            truth = plain.scores(logits, scores.tokens).logprobs
            largest = max(largest, largest_difference([running_sums(scores.logprobs)], [running_sums(truth)]))
            wrong += filter(None, [choice_objection(asked, scores, logits, 2 * self.tolerance)])
        return largest, wrong[0] if wrong else None


def check(lm: CausalLM, ladder: Mapping[str, Rung] | None = None, deepest: int | None = None) -> SelfCheck:
    """Try the rungs from the fastest down and take the first that agrees with the plain path.

    A 16-bit model is also judged by its float32 copy, where that fits in memory: there no noise hides a wrong mask.
    ``ladder``: the rungs to try, by default all that suit the device.  ``deepest``: the most input tokens of anything
    to be asked, by default as many as the window allows.  Raises ModelError when the model answers with NaN or
    infinity, or when no rung agrees.
    """
    depth = probe_depth(lm, deepest)
    judges = _judges(lm, probe(depth, lm.vocabulary))
    trials: list[Trial] = []
    for name, rung in (rungs(lm.device.type) if ladder is None else ladder).items():
        for judge in judges:
            trial, noise = judge.judge(name, rung, max(1, depth // BRANCH))
            if trial.refused is not None:
                break
        trials.append(trial)
        if trial.refused is None and trial.difference is not None:
            advice = _advice(lm, name) if deepest is None or deepest > (position_switch(lm) or deepest) else ""
            cost = "; ".join(filter(None, [rung(lm, 1).cost, advice]))
            limits = judge.floor, judge.tolerance, max(noise, judge.noise)
            return SelfCheck(name, trial.difference, *limits, depth, tuple(trials), cost)
    refusals = "; ".join(f"{trial.rung}: {trial.refused}" for trial in trials)
    raise ModelError(
        f"the model gives other numbers in this way than one sequence at a time ({refusals}); "
        "choose the rung auto, which takes the fastest that is right"
    )


def _advice(lm: CausalLM, rung: str) -> str:
    """How a model would be faster that is slow only because of its longest sequences."""
    switch = position_switch(lm)
    if rung != "plain" or switch is None or lm.window <= switch:
        return ""
    return f"its positions change once a sequence exceeds {switch} tokens; with a window of {switch} it can be faster"


def _judges(lm: CausalLM, spans: list[Span]) -> list[_Judge]:
    """The model itself, after its float32 copy where it has one."""
    with lm.counting():
        truth = plain_sums(lm.model, lm.vocabulary, spans)
    if not np.isfinite(np.concatenate(truth)).all():
        damage = "the model answers random tokens with NaN or infinity: its weights are damaged"
        if lm.model.dtype.itemsize >= 4:
            raise ModelError(f"{damage}; download them again")
        dtype = str(lm.model.dtype).removeprefix("torch.")
        raise ModelError(f"{damage} or too large for {dtype}; try float32, or download them again")
    copied = _float32_copy(lm)
    if copied is not None:
        judges = _judges(copied, spans)
        exact = judges[0].truth
        floor = largest_difference(exact, truth)
        return [*judges, _Judge(lm, spans, exact, floor, max(EXACT, WIDER * floor), noise_of(exact, truth))]
    # To a model whose positions switch, padding a short sequence makes it a long one.
    switch = position_switch(lm)
    part = slice(None, None, SAMPLED) if switch is None or spans[0].inputs <= switch else slice(0, 2)
    with lm.counting():
        padded = padded_sums(lm, spans[part], masked=False)
    floor = largest_difference(padded, truth[part])
    least, most = (EXACT, 10 * EXACT) if lm.model.dtype.itemsize >= 4 else (NARROW, NARROW)
    return [_Judge(lm, spans, truth, floor, float(np.clip(2 * floor, least, most)), noise_of(padded, truth[part]))]


def _float32_copy(lm: CausalLM) -> CausalLM | None:
    """A float32 copy of a 16-bit model, if it takes no more than half of the free memory."""
    copied = float32_copy(lm.model)
    return None if copied is None else CausalLM(copied, lm.window, lm.vocabulary, lm.work)
