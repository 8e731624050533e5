"""How long a server asks to wait: the header Retry-After (RFC 9110, 10.2.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from ``now`` (aware) that the header's ``value`` asks for, 0 at least; None where it asks for nothing.

    It is a number of seconds or an HTTP date; anything else asks for nothing.
    """
    value = (value or "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())
