"""One HTML page of a run or several, with its charts: content, view data, and the document itself.

``document.py`` puts the page together; ``study.py`` reads the runs that it is about.
"""

import sys
from types import ModuleType
from typing import Any


class _Page(ModuleType):
    """Let ``choicewise.page(runs, out)`` write a page: a package hides a function of its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from choicewise.page.document import write_page

        return write_page(*arguments, **options)


sys.modules[__name__].__class__ = _Page
