"""In the fewest tokens: alignment, token boundaries, spans and the plan that runs them."""
