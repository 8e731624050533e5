"""``choicewise lm-eval``: the command line of lm-evaluation-harness, which then knows the model ``choicewise``."""

from __future__ import annotations

from typing import Annotated

import typer

PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
"""Nothing on the line is for us, ``--help`` neither."""


def lm_eval(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT...", help="What follows `lm_eval` on an existing line.")
    ] = None,
) -> None:
    """Run lm-evaluation-harness, every argument unchanged, with one more model: choicewise.

    An existing line works with `choicewise lm-eval` for `lm_eval` and `--model choicewise` for `--model hf`.
    """
    from choicewise.integrations.harness.register import run_harness

    run_harness(arguments or [])
