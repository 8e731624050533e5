"""Spot checks: some texts of a run are computed again by the plain path, to measure the noise in the run's scores.

The run's own answers are compared, so that what is measured is what was stored: at the depths of its questions, in its
packs.  Beside the scored tokens of a text, tokens drawn at random are read at its last rows.  That costs the fast path
next to nothing, as the rows are computed anyway, and gives enough numbers from few texts.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.float32_copy import float32_copy
from choicewise.models.local.score_noise import SIGMAS, Sums, largest_difference, running_sums, scaled_errors
from choicewise.models.local.selfcheck import EXACT, NARROW, WIDER
from choicewise.questions import Generation, Ids, Mass, Span, TokenScores

SHARE = 0.02
"""The most that spot checks compute of what a run computes, in input tokens, beyond ``LEAST``."""

LEAST = 1500
"""Input tokens of texts that are compared in any case, of runs that have as many."""

ENOUGH = 2
"""Texts that are compared however long they are.  The last rows of each give some thirty errors: enough to know their
standard deviation within a fifth, where noise is six of them and must hold 99 % of options."""

CANDIDATES = 16
"""Texts of one call of ``answer`` that may be compared."""

ROWS = 16
"""The last rows of a text, at which random tokens are read."""

ALWAYS = 10 * EXACT
"""Nats a token by which answers may always differ from the plain path: what a self-check in float32 allows at most."""

BEYOND = 7
"""Tokens that follow a text where it is computed in another shape: they change what precedes them by rounding alone."""

Scored = Span | Mass | Generation


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Input tokens of a run, the ``options`` that end after them, and a token drawn for each of the last rows."""

    inputs: Ids
    options: Sequence[Span]
    drawn: Ids

    @property
    def spans(self) -> list[Span]:
        """What is compared: the options, then each last row asked for its drawn token."""
        first = len(self.inputs) - len(self.drawn) + 1
        reads = (Span(self.inputs[: first + row], self.drawn[row : row + 1]) for row in range(len(self.drawn)))
        return [*self.options, *reads]

    def plain_sums(self, lm: CausalLM, beyond: int = 0) -> Sums:
        """The scores of ``spans`` from one pass over the inputs, with so many tokens after them."""
        rows = max(len(self.drawn), *(len(option.continuation) for option in self.options), 0)
        start = len(self.inputs) - rows + 1
        after = np.append(self.inputs[start:], np.zeros(beyond + 1, dtype=np.int32))
        logits = plain.logits(lm.model, lm.vocabulary, self.inputs[:start], after)[:rows]
        targets = [*(option.continuation for option in self.options), self.drawn]
        *options, drawn = (plain.scores(logits[rows - len(tokens) :], tokens).logprobs for tokens in targets)
        return [*map(running_sums, options), *drawn[:, None].astype(np.float64)]


class SpotCheck:
    """How far answers of ``lm`` are from the plain path, for a 16-bit model that of its float32 copy where one fits.

    ``noise``: how far the log-probability of a token may be off, in nats; 0 before the first comparison.  ``tokens``:
    input tokens computed for comparisons.
    """

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm
        self.tokens = 0
        self._texts = 0
        self._squares = np.zeros((2, 2))  # of options and of drawn tokens: the sum of squared errors, and how many

    @property
    def noise(self) -> float:
        """As above: of options or of drawn tokens, whichever is more, as a few options tell little."""
        total, count = self._squares.T
        return SIGMAS * float(np.sqrt(total / np.maximum(count, 1)).max())

    def texts(self, questions: Sequence[Scored]) -> list[Text]:
        """Texts of ``questions`` that may be compared: the longest first, then others of all lengths.

        Longer generations only where nothing else is asked: their contexts are computed in a tree of their own.
        """
        scored = [question for question in questions if _is_scored(question)] or questions[:ENOUGH]
        options = defaultdict[int, list[Span]](list)  # choices of one request share the context array
        by_inputs: dict[int, Scored] = {}
        for question in scored:
            longer = isinstance(question, Span) and len(question.continuation) > 1
            place = id(question if longer else question.context)
            by_inputs.setdefault(place, question)
            if isinstance(question, Span):
                options[place].append(question)
        order = sorted(by_inputs, key=lambda place: by_inputs[place].inputs)
        random = np.random.default_rng(len(order))
        most = self.lm.computed + sum(question.inputs for question in questions)  # shared tokens are counted twice
        texts: list[Text] = []
        tokens = self.tokens
        for place in order[:: -max(1, len(order) // CANDIDATES)][:CANDIDATES]:
            inputs, ending = by_inputs[place].context, options[place]
            if ending:
                inputs = np.concatenate([inputs, ending[0].continuation[:-1]])
            if self._affords(tokens + len(inputs), len(texts), most):
                tokens += len(inputs)
                drawn = random.integers(0, self.lm.vocabulary, min(ROWS, len(inputs)), dtype=np.int32)
                texts.append(Text(inputs, ending, drawn))
        return texts

    def compare(self, texts: Sequence[Text], answers: Iterable[TokenScores]) -> tuple[float, float] | None:
        """Add the errors of ``answers``, one to each of the spans of ``texts``, to the noise, within the share.

        The difference and what is allowed (nats a token) where an answer is further from the truth than the noise of
        any right way explains; else None.
        """
        remaining, exact = iter(answers), None
        for text in texts:
            sums = [running_sums(answer.logprobs) for answer in islice(remaining, len(text.spans))]
            if not self._affords(self.tokens + len(text.inputs), 0, self.lm.computed):
                continue
            exact = exact or self._exact()
            truth = text.plain_sums(exact)
            self.tokens += len(text.inputs)
            difference = largest_difference(sums, truth)
            if not np.isfinite(difference):
                continue  # what is NaN or infinite here is answered by the plain path
            if difference > ALWAYS and difference > (allowed := self._allowed(text, truth, exact)):
                return difference, allowed
            self._texts += 1
            own = len(text.options)
            for row, part in enumerate((slice(own), slice(own, None))):
                if sums[part]:
                    errors = scaled_errors(sums[part], truth[part])
                    self._squares[row] += errors @ errors, len(errors)
        return None

    def _affords(self, tokens: int, texts: int, computed: int) -> bool:
        """Whether ``tokens`` may be spent after ``texts`` more than so far, in a run that has ``computed`` so many."""
        return self._texts + texts < ENOUGH or tokens <= max(LEAST, SHARE * computed)

    def _exact(self) -> CausalLM:
        """What is the truth for the model: itself, or its float32 copy."""
        copied = float32_copy(self.lm.model)
        return self.lm if copied is None else CausalLM(copied, self.lm.window, self.lm.vocabulary)

    def _allowed(self, text: Text, truth: Sums, exact: CausalLM) -> float:
        """How far an answer about ``text`` may be from the truth, by how far another right way is."""
        if exact is self.lm and self.lm.model.dtype.itemsize < 4:
            return NARROW
        beyond = min(BEYOND, self.lm.window - len(text.inputs)) if exact is self.lm else 0
        return max(ALWAYS, WIDER * largest_difference(text.plain_sums(self.lm, beyond), truth))


def _is_scored(question: Scored) -> bool:
    """Whether it is answered from the tree of spans."""
    if not isinstance(question, Generation):
        return True
    return question.limit == 1 and not question.stops and question.sampling is None
