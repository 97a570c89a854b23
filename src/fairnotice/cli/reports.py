"""Whether the endpoint of a node reports, as the control plane that leads has heard of it."""

from datetime import datetime
from typing import Any

from fairnotice.cli.instants import from_api

# An endpoint reports every half minute, also that there is nothing: so it has missed two.
SILENT_SECONDS = 75.0
FOLLOWS, SILENT, UNHEARD = "follows", "silent", "not heard yet"


def in_a_word(endpoint: dict[str, Any], now: datetime) -> str:
    """`follows`, `silent`, or `not heard yet` by one that has led for less than a minute."""
    if endpoint["heard_at"] is None:
        return UNHEARD
    silent_seconds = (now - from_api(endpoint["heard_at"])).total_seconds()
    return SILENT if silent_seconds > SILENT_SECONDS else FOLLOWS
