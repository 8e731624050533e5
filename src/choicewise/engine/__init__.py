"""In the fewest tokens: the token tree and its packs."""
