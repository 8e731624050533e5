"""Register the model ``choicewise`` of lm-evaluation-harness, and run the harness with it."""

from choicewise.errors import UsageError, install_line

NAME = "choicewise"

HELP = (
    "usage: choicewise lm-eval ARGUMENT...",
    "Run lm-evaluation-harness with choicewise as its model. All arguments are passed on.",
    "In your command, write `choicewise lm-eval` for `lm_eval`, and name the model `choicewise`.",
)
"""Help of the command if the harness is not installed."""


def register() -> None:
    """Register the model in the harness.  Raises UsageError if lm_eval is not installed."""
    try:
        # The harness registers its models only while there is none (get_model,
        # lm_eval/api/registry.py), so this import does it first.
        import lm_eval.models  # noqa: F401
        from lm_eval.api.registry import MODEL_REGISTRY, register_model
    except ImportError as error:
        raise UsageError(
            f"lm_eval is not installed ({error}); run: {install_line('harness')}"
        ) from error
    from choicewise.extensions.interop.lm_eval.model import ChoicewiseLM

    if NAME not in MODEL_REGISTRY:
        register_model(NAME)(ChoicewiseLM)


def run_harness(arguments: list[str]) -> None:
    """Run the harness's command line with ``arguments``, which may end the process."""
    import sys

    try:
        register()
    except UsageError as error:
        # The harness prints its own help, with all of its options, if it is installed.
        if arguments not in (["--help"], ["-h"]):
            raise
        from choicewise.cli.terminal import show

        show(*HELP, error.message)
        return
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["lm-eval", *arguments]
    cli_evaluate()
