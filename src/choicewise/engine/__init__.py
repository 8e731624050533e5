"""Every shared token computed once: the token tree and its packs."""
