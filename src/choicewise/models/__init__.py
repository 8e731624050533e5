"""Who answers: one file per kind of model behind one small interface."""
