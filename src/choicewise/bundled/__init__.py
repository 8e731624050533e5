"""What comes with the package, so that every command works at once and without a network.

`BENCHMARK` is the Merrowick benchmark, 448 questions about an invented place in the original MMLU layout.
`COMMONS` holds 120 questions of general school knowledge in the same layout, for real models.
`MODELS` are four small models trained on the facts of that place, for trying protocols out on a CPU in seconds.
`PUBLISHED_MMLU` is the table of June 2023 that shows how far three protocols disagree on the same models.
`bundled:merrow-bpe-2048` names a model of them wherever a model is named; `bundled:merrowick` and
`bundled:commons` name the questions.
"""

from pathlib import Path

_HERE = Path(__file__).parent

BENCHMARK = _HERE / "merrowick"
COMMONS = _HERE / "commons"
DATASETS = (BENCHMARK, COMMONS)
MODELS = tuple(sorted(path.parent for path in (_HERE / "models").glob("*/config.json")))
PUBLISHED_MMLU = _HERE / "published_mmlu.json"

PREFIX = "bundled:"
"""What the name of a bundled model or dataset begins with."""


def bundled_folder(name: str, folders: tuple[Path, ...]) -> Path | None:
    """Return the folder among ``folders`` that ``name`` (``bundled:FOLDER``) names, or None."""
    for folder in folders:
        if name == PREFIX + folder.name:
            return folder
    return None
