"""What the benchmarks ask: protocols of their own, one or several at once, over a few hundred questions each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Span
from choicewise.records import Selection
from choicewise.requests.blocks import cut_blocks, list_request_specs, list_sections, prepare_block
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.requests.request import Request
from choicewise.tokens.tokenizer import Tokenizer

PROTOCOLS = Path(__file__).parent / "protocols"


@dataclass(frozen=True)
class Workload:
    """``questions`` (of every subject) of a folder of data, under the files of ``protocols``.

    ``batch``: sequences in a batch of the peers, the best of 1, 2, 4 and 8 on four cores.  ``targets``: what is hoped
    for with the 25 M model in float32, peer ÷ ours and ours ÷ the dense limit.
    """

    data: str
    protocols: tuple[str, ...]
    questions: int
    batch: int
    targets: tuple[float, float] | None = None
    null: bool = False

    @property
    def files(self) -> list[Path]:
        """The protocols' TOML files."""
        return [PROTOCOLS / f"{name}.toml" for name in self.protocols]


WORKLOADS: Mapping[str, Workload] = {
    "mmlu-letters": Workload("mmlu", ("mmlu-letters",), 60, 2, (12, 1.20)),
    "mmlu-text": Workload("mmlu", ("mmlu-text",), 60, 2, (30, 1.15)),
    "mmlu-cloze": Workload("mmlu", ("mmlu-cloze",), 60, 2),
    "mmlu-null": Workload("mmlu", ("mmlu-null",), 60, 2, null=True),
    "hellaswag-100": Workload("hellaswag", ("hellaswag",), 100, 4),
    "hellaswag-1000": Workload("hellaswag", ("hellaswag",), 1000, 4, (2.5, 1.10)),
    "arc-easy": Workload("arc-easy", ("arc-easy",), 570, 4, (5, 1.15)),
    "arc-easy-both": Workload("arc-easy", ("arc-easy", "arc-easy-letters"), 570, 4),
    "arc-challenge": Workload("arc-challenge", ("arc-challenge",), 100, 2, (60, 1.20)),
}


@dataclass
class Prompter:
    """A tokenizer and a window, which is all that asking needs of a model."""

    tokenizer: Tokenizer
    window: int = 4096


def spans(workload: Workload, data: Path, tokenizer: Tokenizer) -> list[Span]:
    """The distinct spans of a workload."""
    dataset, recipes = open_dataset(data / workload.data), resolve(*map(str, workload.files))
    specs, wanted = list_request_specs(recipes), {}
    for section in list_sections(dataset, recipes, Selection(limit=workload.questions)):
        for block in cut_blocks(section, 0, len(section.items), specs, dataset, ()):
            wanted |= prepare_block(dataset, block, Prompter(tokenizer), False).wanted
    return [question for question in wanted.values() if isinstance(question, Span)]


Pair = tuple[tuple[str, str], int, str, str]
"""A request to a peer: (digest of the prompt's recipe, item), choice, context, continuation."""


def requests(protocol: Protocol, data: Dataset, subject: str) -> Iterator[Request]:
    """The requests of the items of one subject in the protocol's split; DataError at a refused one."""
    for request in TemplateSource(protocol, data).requests(
        subject, data.rows(protocol.split or data.evaluated, subject)
    ):
        if isinstance(request, Refusal):
            raise request.reason
        yield request


def texts(workload: Workload, data: Path) -> list[Pair]:
    """Every request of a workload, those after nothing behind the others."""
    dataset, given, null = open_dataset(data / workload.data), list[Pair](), list[Pair]()
    for recipe in resolve(*map(str, workload.files)).values():
        for subject in dataset.choose(recipe.split, None):
            for request in list(requests(recipe, dataset, subject))[: workload.questions]:
                context, item = request.context(), (recipe.prompt_digest, request.item.id)
                for choice, text in enumerate(request.continuations):
                    given.append((item, choice, context, text))
                    null.append((item, choice, "", text))
    return given + (null if workload.null else [])
