"""What a run folder holds, read and laid out once, whichever protocols are looked at."""

from functools import cached_property
from pathlib import Path

from choicewise.records.manifest import Manifest
from choicewise.results.evidence import Evidence
from choicewise.results.run_tables import RunTables, read_run_tables


class RunEvidence:
    """The evidence of the run in ``folder`` under each of its prompts.  Reads nothing before it is needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._by_prompt: dict[str, Evidence] = {}

    @cached_property
    def tables(self) -> RunTables:
        """The four tables of the folder, checked against the manifest."""
        return read_run_tables(self.folder, self.manifest)

    def under(self, prompt: str) -> Evidence:
        """What was observed under a prompt (``Protocol.prompt_digest``)."""
        if prompt not in self._by_prompt:
            self._by_prompt[prompt] = Evidence(self.tables, prompt)
        return self._by_prompt[prompt]
