"""Items in full in files beside the page, which it fetches when it is served."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.web.json_text import json_text
from choicewise.web.page.content import Content
from choicewise.web.page.items import details


@dataclass(frozen=True, slots=True)
class Part:
    """One file: its name in the folder beside the page, its digest, and the items (places of the index) in it."""

    dataset: int
    name: str
    bytes: int
    sha256: str
    items: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        """What the page's script needs to fetch and check it."""
        return {"name": self.name, "sha256": self.sha256, "ids": self.items}


def make_parts(content: Content, chosen: Sequence[Sequence[int]]) -> Iterator[tuple[Part, bytes]]:
    """The ``chosen`` items of each dataset, part by part with the content of its file."""
    for dataset, (listed, places) in enumerate(zip(content.listed, chosen, strict=True)):
        for number, (own, batch) in enumerate(details(content.study, listed, places)):
            text = json_text(batch, plain=True).encode()
            name = f"{dataset}-{number}.json"
            yield Part(dataset, name, len(text), hashlib.sha256(text).hexdigest(), tuple(own)), text
