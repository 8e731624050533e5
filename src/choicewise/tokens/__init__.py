"""Where text becomes questions: tokenizers, token boundaries, byte alignment, vocabulary, window."""
