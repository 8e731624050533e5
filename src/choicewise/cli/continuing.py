"""The words of a line that goes on with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from choicewise.cli.output import tell

if TYPE_CHECKING:
    from choicewise.records.manifest import Manifest


def begun_words(manifest: Manifest) -> tuple[str, ...]:
    """Model, data and selection of a run as a line says them: as it was begun, or else by their names.

    Says so on stderr where names are not known to be paths.
    """
    if manifest.command:
        return manifest.command
    model, selection = manifest.model, manifest.selection
    words = ["--model", model.name, "--data", manifest.dataset.name]
    if not model.name.startswith("fake:"):
        words += ["--dtype", model.arithmetic, "--device", model.device, "--window", str(model.window)]
    words += [word for subject in selection.subjects or () for word in ("--subject", subject)]
    words += [] if selection.limit is None else ["--limit", str(selection.limit)]
    tell("note: the run does not say where model and data lie; their names stand in its line for the paths")
    return tuple(words)
