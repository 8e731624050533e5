"""Sizes as people write them: ``12 GB``."""

import re

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def bytes_of(text: str) -> int:
    """Bytes from ``20GB``, ``500 MB`` or ``1.5TB``; 0 for anything else."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE | re.ASCII)
    return int(float(match[1]) * UNITS[match[2].upper()]) if match else 0
