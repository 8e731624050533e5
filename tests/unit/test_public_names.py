"""The public names: loaded when they are used, and the same for type checkers."""

import ast

import choicewise
from choicewise.ports import built_in_extensions
from tests.paths import ROOT

STUB = ROOT / "src" / "choicewise" / "__init__.pyi"


def test_type_checkers_know_every_name_by_its_module() -> None:
    modules = {}
    for node in ast.parse(STUB.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            modules.update({alias.asname or alias.name: node.module for alias in node.names})
    assert modules.keys() == {*choicewise.__all__}
    of_extensions = {}
    for extension in built_in_extensions():
        of_extensions.update(extension.names or {})
    assert modules.items() >= of_extensions.items()
    kernel = {name: modules[name] for name in modules.keys() - of_extensions.keys()}
    assert not any(str(module).startswith("choicewise.extensions") for module in kernel.values())
