"""The model ``choicewise`` of lm-evaluation-harness: its requests answered by our engine."""

from choicewise.errors import UsageError, install_line

NAME = "choicewise"


def register() -> None:
    """Register the model beside the harness's own; UsageError where the harness is not installed.

    Those are registered first, because the harness registers its own only while no model is known
    (``get_model``, ``lm_eval/api/registry.py``).
    """
    try:
        import lm_eval.models  # noqa: F401 (it registers them)
        from lm_eval.api.registry import MODEL_REGISTRY, register_model
    except ImportError as error:
        raise UsageError(
            f"lm_eval is not installed ({error}); run: {install_line('harness')}"
        ) from error
    from choicewise.extensions.interop.lm_eval.model import ChoicewiseLM

    if NAME not in MODEL_REGISTRY:
        register_model(NAME)(ChoicewiseLM)


def run_harness(arguments: list[str]) -> None:
    """The harness's own command line with ``arguments``; it may end the process."""
    import sys

    register()
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["lm-eval", *arguments]
    cli_evaluate()
