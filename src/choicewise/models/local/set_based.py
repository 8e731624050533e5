"""Answer options as a set: one pass for a context and all continuations after it.

Options do not see each other (McIlroy-Young et al. 2024, arXiv:2406.06581), so that their order
changes nothing beyond rounding.  Masks and windows go by positions, as in the tree of tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.engine import Reach
from choicewise.errors import ModelError
from choicewise.models.local import attention, plain
from choicewise.models.local.attention import AttentionOptions, hidden_states
from choicewise.models.local.parallel import LESS_MEMORY, out_of_memory, same_on_all_ranks
from choicewise.questions import Answers, Ids, SetSpan, Span, TokenScores

if TYPE_CHECKING:
    from choicewise.models.local.causal_lm import CausalLM

_UNABLE = "this model can't read options as a set: "


class SetBasedPath:
    """Answers :class:`~choicewise.questions.SetSpan`."""

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @torch.inference_mode()
    def answer(self, questions: Sequence[SetSpan]) -> Answers:
        """Yield the answers, context by context, or why the model can't be asked."""
        if self.objection is not None:
            for index, question in enumerate(questions):
                yield index, TokenScores.unanswered(self.objection, question.continuation)
            return
        by_context = defaultdict[bytes, list[int]](list)
        for index, question in enumerate(questions):
            by_context[question.edges.tobytes() + question.context.tobytes()].append(index)
        for indexes in by_context.values():
            self.lm.work.planned += len(questions[indexes[0]].context)
        for question in questions:
            self.lm.work.planned += len(question.continuation) - 1
        for indexes in by_context.values():
            group = [questions[index] for index in indexes]
            try:
                scores = self._scores(group)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                raise ModelError(
                    f"there is not enough memory for {group[0].inputs} tokens at once; "
                    f"{LESS_MEMORY}"
                ) from error
            yield from zip(indexes, scores, strict=True)

    @cached_property
    def objection(self) -> str | None:
        """Return why the model can't be asked, or None.

        A few options are read in two orders, and one option, which is then a text like any other.
        """
        random = np.random.default_rng(0)
        before, first, second, third, after, scored = (
            random.integers(0, self.lm.vocabulary, size, dtype=np.int32)
            for size in (5, 3, 1, 6, 4, 8)
        )
        context = np.concatenate([before, first, second, third, after])
        text = np.concatenate([before, third, after])
        options = SetSpan(context, scored, np.asarray([5, 8, 9, 15], dtype=np.int32))
        single = SetSpan(text, scored, np.asarray([5, 11], dtype=np.int32))
        with self.lm.counting():
            truth = plain.score(self.lm.model, self.lm.vocabulary, Span(text, scored)).logprobs
        try:
            with torch.inference_mode():
                in_order = self._logprobs(options)
                reordered = self._logprobs(options.in_order((2, 0, 1)))
                as_text = self._logprobs(single)
        except Exception as error:
            # The code of a model fails in every way there is.
            lines = str(error).splitlines() or [type(error).__name__]
            return _UNABLE + lines[0][:200]
        by_order = np.abs(in_order - reordered).max()
        by_reading = np.abs(as_text - truth).max()
        difference = max(by_order, by_reading)
        if difference <= max(1e-3, 64 * torch.finfo(self.lm.model.dtype).eps):
            return None
        return (
            f"{_UNABLE}{difference:.2g} nats a token depend on the order of the options, or on how "
            "each is read"
        )

    def _logprobs(self, question: SetSpan) -> npt.NDArray[np.float32]:
        (scores,) = self._scores([question])
        return scores.logprobs

    def _scores(self, group: Sequence[SetSpan]) -> list[TokenScores]:
        """Return the answers to questions with the same context and options."""
        row = _Row(group)
        set_pass = _SetPass(row)
        inputs = {
            "input_ids": self.lm.tensor(same_on_all_ranks(row.tokens))[None],
            "position_ids": self.lm.tensor(row.positions)[None],
        }
        hidden = hidden_states(self.lm, set_pass.attend, inputs)
        layers = self.lm.layers
        if set_pass.calls != layers:
            raise ValueError(
                f"{layers - set_pass.calls} of its {layers} layers take no mask for their attention"
            )
        # Rows are read in ascending order, and given back in that of the questions.
        ascending = np.argsort(row.reads, kind="stable")
        back = np.argsort(ascending, kind="stable")
        tokens, logprobs, ranks = self.lm.read(hidden, row.reads[ascending], row.targets[ascending])
        scores = TokenScores(
            tokens.cpu().numpy()[back], logprobs.cpu().numpy()[back], ranks.cpu().numpy()[back]
        )
        answers = []
        start = 0
        for question in group:
            part = slice(start, start + len(question.continuation))
            answers.append(
                TokenScores(scores.tokens[part], scores.logprobs[part], scores.ranks[part])
            )
            start = part.stop
        return answers


class _Row:
    """A context and the inputs of all continuations after it as one row of tokens.

    ``tokens`` and ``positions``: [tokens].  ``option`` and ``branch``: the number of every token's
    option or continuation, from 1 on, else 0.  ``reads``: the tokens after which ``targets`` are
    scored, question after question.
    """

    def __init__(self, group: Sequence[SetSpan]) -> None:
        context = group[0].context
        edges = group[0].edges
        sizes = np.diff(edges)
        start = int(edges[0])
        after = len(context) - int(edges[-1])
        # All options begin at the same position, and the text after them follows the longest.
        resumed = start + int(sizes.max(initial=0))
        inputs = [question.continuation[:-1] for question in group]
        positions = [np.arange(start)]
        positions += [np.arange(start, start + size) for size in sizes]
        positions.append(np.arange(resumed, resumed + after))
        reads = []
        begin = len(context)
        for tokens in inputs:
            positions.append(np.arange(resumed + after, resumed + after + len(tokens)))
            reads.append([len(context) - 1, *range(begin, begin + len(tokens))])
            begin += len(tokens)
        self.tokens: Ids = np.concatenate([context, *inputs]).astype(np.int32)
        self.positions: Ids = np.concatenate(positions).astype(np.int32)
        self.option = np.zeros(len(self.tokens), dtype=np.int32)
        self.option[start : edges[-1]] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        self.branch = np.zeros(len(self.tokens), dtype=np.int32)
        lengths = [len(tokens) for tokens in inputs]
        self.branch[len(context) :] = np.repeat(np.arange(1, len(group) + 1), lengths)
        self.reads: Ids = np.concatenate(reads).astype(np.int32)
        self.targets: Ids = np.concatenate([question.continuation for question in group])

    def visible(self, rows: slice, reach: Reach) -> npt.NDArray[np.bool_]:
        """Return which tokens up to the last of ``rows`` every row sees, [rows, tokens]."""
        keys = slice(rows.stop)
        row = np.arange(rows.start, rows.stop)[:, None]
        option = self.option[rows, None]
        key_option = self.option[keys]
        key_branch = self.branch[keys]
        before = np.arange(rows.stop) <= row
        same_option = (option == 0) | (key_option == 0) | (option == key_option)
        same_branch = (key_branch == 0) | (key_branch == self.branch[rows, None])
        lowest = reach.lowest(self.positions[rows])[:, None]
        within = self.positions[keys] >= lowest
        return np.asarray(before & same_option & same_branch & within)


class _SetPass:
    """One row on its way through the layers, which ``calls`` counts."""

    def __init__(self, row: _Row) -> None:
        self.row = row
        self.calls = 0
        self._masks: dict[Any, list[tuple[slice, Tensor]]] = {}

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Return the next layer's attention; shapes as in
        :data:`~choicewise.models.local.attention.Attend`.
        """
        self.calls += 1
        count = query.shape[2]
        group = query.shape[1] // key.shape[1]
        kind = (options.reach, group, query.device)
        if kind not in self._masks:
            self._masks[kind] = []
            for start in range(0, count, attention.SEGMENT):
                rows = slice(start, min(start + attention.SEGMENT, count))
                mask = attention.additive(self.row.visible(rows, options.reach), group, query)
                self._masks[kind].append((rows, mask))
        output = query.new_empty(1, count, query.shape[1], value.shape[3])
        for rows, mask in self._masks[kind]:
            keys = key[:, :, : rows.stop]
            values = value[:, :, : rows.stop]
            output[:, rows] = attention.attend(query[:, :, rows], keys, values, mask, options)
        return output
