"""What a model can be asked, in tokens, and what it answers."""
