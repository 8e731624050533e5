"""Where next tokens are read: the token tree of some questions, node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.engine.tree import FIRST_SET, Tree, build
from choicewise.models.server.routes.route import Part
from choicewise.questions import Mass, Span, TokenSet


@dataclass(frozen=True, slots=True)
class Node:
    """The tokens of a ``prefix``, and what is wanted after it.

    ``tokens``: wanted next token → the parts of questions that ask for it; ``sets``: the same of sets of tokens.
    """

    prefix: list[int]
    tokens: dict[int, list[Part]]
    sets: list[tuple[TokenSet, list[Part]]]


def nodes(questions: Sequence[tuple[int, Span | Mass]]) -> Iterator[Node]:
    """Every prefix at which one of ``questions`` (index, question) reads, in depth-first order and each once.

    So a server that keeps the prompts it saw last has read most of every prefix before.  Part ``j`` of a span is its
    ``j``-th token; a mass is one part.
    """
    if not questions:
        return
    tree = build([question for _, question in questions])
    asked = defaultdict[int, list[int]](list)
    for (index, _), span in zip(questions, tree.span_of.tolist(), strict=True):
        asked[span].append(index)
    order = np.argsort(tree.rows, kind="stable")
    span_of = np.searchsorted(tree.starts, order, side="right") - 1
    path = np.empty(int(tree.depth.max()) + 1, dtype=np.int32)
    start = done = 0
    rows = tree.rows[order]
    while start < len(order):
        row = int(rows[start])
        stop = int(np.searchsorted(rows, row, side="right"))
        new = slice(done, row + 1)
        path[tree.depth[new]] = tree.tokens[new]  # of several at one depth the last counts, an ancestor of the node
        done = row + 1
        yield _node(tree, path[: tree.depth[row] + 1].tolist(), order[start:stop], span_of[start:stop], asked)
        start = stop


def _node(tree: Tree, prefix: list[int], places: np.ndarray, spans: np.ndarray, asked: dict[int, list[int]]) -> Node:
    node = Node(prefix, {}, [])
    for place, span in zip(places.tolist(), spans.tolist(), strict=True):
        number, target = place - int(tree.starts[span]), int(tree.targets[place])
        parts = [Part(index, number) for index in asked[span]]
        if target > FIRST_SET:
            node.tokens.setdefault(target, []).extend(parts)
        else:
            node.sets.append((tree.sets[FIRST_SET - target], parts))
    return node
