"""What answers: models in folders (``local``), behind servers (``server``), and the fake one of tests.

``model.py`` is the interface that the rest uses; ``load.py`` finds a model by the name a user gives.
"""
