"""Choicewise: what a language model scores on multiple-choice questions, under every published protocol."""
