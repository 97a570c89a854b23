"""Instants as services write them. No locale and no `email`: a VM's memory counts."""

import re
from datetime import UTC, datetime, timedelta, timezone

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
# RFC 1123 (Mon, 19 Sep 2016 18:29:47 GMT), RFC 850 (Monday, 19-Sep-16 18:29:47 GMT) and RFC 822
# (19 Sep 16 18:29 +0000). The weekday is not looked at: Azure's own pages have wrong ones.
_BY_NAME = re.compile(
    r"(?:[a-z]+,?\s+)?(\d{1,2})[\s-]([a-z]{3})[a-z]*[\s-](\d{2}|\d{4})\s+"
    r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*(?:gmt|utc|ut|z|([+-])(\d\d):?(\d\d))?",
    re.IGNORECASE | re.ASCII,
)
# A year of two digits is the one that is near: RFC 850's own rule, for as long as this matters.
_CENTURY = 2000
_TWO_DIGITS = 2


def read_instant(text: str) -> datetime | None:
    """The instant, in UTC; None where the text is empty or means none. Naive ones are UTC."""
    text = text.strip()
    try:
        found = _BY_NAME.fullmatch(text)
        instant = _by_name(found) if found else datetime.fromisoformat(text)
        if instant.tzinfo is None:
            return instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _by_name(found: re.Match[str]) -> datetime:
    day, month, year, hour, minute, second, sign, hours, minutes = found.groups()
    east = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    return datetime(
        int(year) + (_CENTURY if len(year) == _TWO_DIGITS else 0),
        _MONTHS.index(month.lower()) + 1,
        int(day),
        int(hour),
        int(minute),
        int(second or 0),
        tzinfo=timezone(-east if sign == "-" else east),
    )
