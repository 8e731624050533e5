"""Items in full in files beside the page, which it fetches when it is served."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.web.json_text import json_text
from choicewise.web.page.items import Items, details
from choicewise.web.page.study import Study


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


def make_parts(study: Study, listed: Sequence[Items], most: int) -> Iterator[tuple[Part, bytes]]:
    """The ``most`` items of each dataset that flip most, part by part with the content of its file."""
    for dataset, each in enumerate(listed):
        for number, (places, content) in enumerate(details(study, each, each.index.order[:most])):
            text = json_text(content).encode()
            name = f"{dataset}-{number}.json"
            yield Part(dataset, name, len(text), hashlib.sha256(text).hexdigest(), tuple(places)), text
