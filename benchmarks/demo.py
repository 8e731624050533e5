"""What `choicewise demo` spends its time on: the models, and everything else.

python benchmarks/demo.py
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

START = time.perf_counter()

from machine import machine

RESULTS = Path(__file__).resolve().parent / "results" / "demo.json"


def main() -> None:
    """Run the demo in this process, with the parts timed, and store what they took."""
    from choicewise.cli.commands import invoke
    from choicewise.models.local import networks
    from choicewise.models.local.causal_lm import CausalLM
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.paths import TreePath
    from choicewise.models.local.selfcheck import SpotCheck
    from choicewise.page import document as write
    from choicewise.results import summary

    seconds = Counter({"imports, torch and transformers among them": time.perf_counter() - START})
    running: list[str] = []

    def timed(part: str, owner: Any, name: str) -> None:
        """Have what ``owner`` calls ``name`` count for ``part``, where it is not within another part."""
        call: Callable[..., Any] = getattr(owner, name)

        @wraps(call)
        def counted(*arguments: Any, **options: Any) -> Any:
            if running:
                return call(*arguments, **options)
            running.append(part)
            start = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                seconds[part] += time.perf_counter() - start
                running.clear()

        setattr(owner, name, counted)

    timed("the models' passes", TreePath, "forward")
    timed("the models' vocabulary", CausalLM, "read")
    timed("self-checks", LocalModel, "check")
    timed("spot checks", SpotCheck, "compare")
    timed("loading weights", networks, "load_network")
    timed("numbers", summary, "keep_summary")
    timed("the page", write, "write_page")
    with tempfile.TemporaryDirectory() as out:
        os.environ["XDG_CACHE_HOME"] = f"{out}/cache"  # empty, so that the models are checked
        invoke(["demo", "--out", f"{out}/demo"])
    total = time.perf_counter() - START
    parts = {part: round(spent, 1) for part, spent in seconds.most_common()}
    RESULTS.write_text(
        json.dumps({"seconds": round(total, 1), "parts": parts, "machine": machine()}, indent=1)
        + "\n"
    )
    print(f"{total:.1f} s: {parts}, the rest {total - sum(parts.values()):.1f} s")


if __name__ == "__main__":
    main()
