"""A run that the tests of several formats export."""

import pytest

from choicewise.results.run import Run, open_run
from tests.helpers.page_runs import write_hostile_run


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of a model, on questions and choices, whose texts could do harm; nobody changes it."""
    return open_run(write_hostile_run(tmp_path_factory.mktemp("hostile") / "run"))
