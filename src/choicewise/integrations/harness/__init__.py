"""The engine as a model of lm-evaluation-harness (``--model choicewise``): its numbers, each token computed once.

:mod:`~choicewise.integrations.harness.lm` holds the class that the harness calls, and alone imports it.  What it does
follows release 0.4.13 (``lm_eval/models/huggingface.py`` and ``lm_eval/api/model.py``, 4e7e0d4), whose ``hf`` model is
held against it in ``tests/peers``.
"""
