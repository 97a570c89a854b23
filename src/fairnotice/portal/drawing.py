"""Templates, and what they write with: everything is escaped, and an unknown name is an error."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairnotice.control.in_words import (
    clock_time,
    notice_in_words,
    seconds_in_words,
    window_in_words,
)
from fairnotice.portal.assets import BUILD, address_of

SHORT = 8
_TICKING = {
    "since": Markup('<time datetime="{}" data-since="{}">{}</time>'),
    "until": Markup('<time datetime="{}" data-until="{}">{}</time>'),
}


def _epoch(when: datetime) -> str:
    """An instant for the page's own clock."""
    return f"{when.timestamp():.3f}"


def _name(text: str) -> Markup:
    """A name that somebody gave: whatever it is written in, it stays where it is."""
    return Markup("<bdi>{}</bdi>").format(text)


def _names(texts: list[str] | tuple[str, ...], most: int = 6) -> Markup:
    """Some names, and how many more there are."""
    shown = Markup(", ").join(_name(text) for text in texts[:most])
    more = len(texts) - most
    return shown + f" and {more} more" if more > 0 else shown


def _instant(when: datetime | None) -> Markup:
    """An instant in full, to the second."""
    if when is None:
        return Markup("-")
    said = f"{when:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}">{} UTC</time>').format(f"{when:%Y-%m-%dT%H:%M:%SZ}", said)


def _ticking(when: datetime, way: str) -> Markup:
    """A length of time that the page counts: `until` an instant, or `since` one."""
    # Until it does, and where no script runs, the instant itself: that does not change.
    said = f"{when:%Y-%m-%d %H:%M:%S} UTC"
    return _TICKING[way].format(f"{when:%Y-%m-%dT%H:%M:%SZ}", _epoch(when), said)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fairnotice.portal"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": clock_time,
        "epoch": _epoch,
        "in_path": lambda text: quote(text, safe=""),
        "instant": _instant,
        "lasting": seconds_in_words,
        "name": _name,
        "names": _names,
        "notice": notice_in_words,
        "short": lambda text: text[:SHORT],
        "ticking": _ticking,
        "window": window_in_words,
    }
    made.globals |= {"asset": address_of, "build": BUILD}
    return made


ENVIRONMENT = _environment()


def draw(template: str, context: Mapping[str, Any]) -> str:
    """A template with what it shows."""
    return ENVIRONMENT.get_template(template).render(context)
