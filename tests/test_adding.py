"""What ``docs/design/adding.md`` promises: adding a reading takes a declaration, a file that asks, and one that combines."""

import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, ModuleType

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.models.fake import HashModel
from choicewise.protocols import consistency, protocol, readings
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.readings import READINGS, Reading
from choicewise.requests.readings import asker
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.scoring.readings import combiner
from choicewise.scoring.readings.combiner import Combiner

ROOT = Path(__file__).parent.parent / "src" / "choicewise"
QUIZ = Dataset("quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)})


def test_a_reading_is_a_declaration_a_file_that_asks_and_a_file_that_combines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A reading that prefers the less likely choice, added without touching any other file."""
    declared = {**READINGS, "contrary": Reading("minus the log-likelihood", ("sum",))}
    for module in (readings, consistency, protocol):
        monkeypatch.setattr(module, "READINGS", MappingProxyType(declared))
    allowed = next(field for field in protocol.fields(protocol.Protocol) if field.name == "reading")
    monkeypatch.setattr(allowed, "metadata", {**allowed.metadata, "allowed": tuple(declared)})
    for module in list(sys.modules.values()):
        if module.__name__.startswith("choicewise.") and getattr(module, "READINGS", None) is READINGS:
            monkeypatch.setattr(module, "READINGS", MappingProxyType(declared))
    asks, combines = ModuleType("contrary"), ModuleType("contrary")
    asks.ASKER = ChoiceAsker()  # type: ignore[attr-defined]
    combines.COMBINER = Combiner(lambda protocol, observed: -observed.scores("sum"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "choicewise.requests.readings.contrary", asks)
    monkeypatch.setitem(sys.modules, "choicewise.scoring.readings.contrary", combines)

    plain = resolve("options/cloze")["options/cloze:sum"]
    both = {"plain": plain, "contrary": replace(plain, reading="contrary")}
    run = evaluate(model=HashModel(), data=QUIZ, protocols=both, out=tmp_path)
    scores = {name: [row["score"] for row in run.scores().to_pylist() if row["protocol"] == name] for name in both}
    np.testing.assert_allclose(scores["contrary"], [-score for score in scores["plain"]])
    assert [row.value for row in run.rows()] in ([0.0, 1.0], [1.0, 0.0])
    asker.cache_clear()
    combiner.cache_clear()


@pytest.mark.parametrize("reading", READINGS)
def test_no_other_file_knows_a_reading_by_its_name(reading: str) -> None:
    """Its declaration and its own two files; where a name is also a word of the field, only comparisons count."""
    module = reading.replace("-", "_")
    own = {
        ROOT / "protocols/readings.py",
        *(ROOT / room / "readings" / f"{module}.py" for room in ("requests", "scoring")),
    }
    assert all(file.is_file() for file in own)
    for file in ROOT.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert file in own or f'reading == "{reading}"' not in text, file
        assert file in own or f'reading != "{reading}"' not in text, file
