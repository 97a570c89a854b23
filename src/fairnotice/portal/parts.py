"""A page is made of parts: each is drawn by itself, and sent anew when it has changed.

A part is an element of its own in a box, which is an element that holds such parts in order. The
page that is asked for first has all of them; whoever stays is sent those that change.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from fairnotice.engine.changes import Row
from fairnotice.portal.drawing import draw
from fairnotice.portal.site import Site, Viewer

# One takes a tenth of a millisecond.
DRAWN_TOGETHER_MAX = 20


class Key(NamedTuple):
    """Which part: what it shows, and of what."""

    kind: str
    name: str = ""

    @property
    def id(self) -> str:
        """The id of its element."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


class Part(NamedTuple):
    """A part as it is now: its element, in which box, and where among those in there."""

    id: str
    box: str
    order: str
    html: str


# Beyond all instants that there will be: counted from there, the newest has the smallest number.
_LATEST_SECONDS = 10**10


def newest_first(when: datetime) -> str:
    """Where among others something of this instant is put, the newest on top."""
    return f"{_LATEST_SECONDS - when.timestamp():015.3f}"


class Page:
    """What one address shows. A new one for each time it is asked for, and for each who stays."""

    template = ""
    # Which entry of the navigation it belongs to.
    section = ""

    def __init__(self, site: Site, viewer: Viewer) -> None:
        self.site = site
        self.viewer = viewer
        self.fleet = site.fleet
        # The instant that all parts of one drawing share.
        self.now = site.now()

    @property
    def title(self) -> str:
        """What the browser's tab says."""
        return self.section.capitalize()

    @property
    def state(self) -> str:
        """What a drawing depends on beside the rows; whoever stays says it, and it is resumed."""
        return ""

    def resume(self, state: str) -> None:
        """Go on with the state of the page that was asked for first."""

    def keys(self) -> Iterable[Key]:
        """All parts that there are."""
        raise NotImplementedError

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:  # noqa: ARG002 - all, unless it knows better
        """The parts that may look another way after these rows have changed."""
        return self.keys()

    def passing(self) -> Iterable[Key]:
        """The parts that may look another way because time has passed."""
        return ()

    def part(self, key: Key) -> Part | None:
        """A part as it is now; None where it is no more."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Take what was committed since, and this instant."""
        self.fleet = self.site.fleet
        self.now = self.site.now()

    # ---- Drawing ----

    def drawn(self, key: Key, box: str, template: str, order: str = "", **more: Any) -> Part:  # noqa: ANN401 - what a template needs
        """A part, drawn by its template."""
        html = draw(template, {**self.context(), "key": key, "order": order, **more})
        return Part(key.id, box, order, html.strip())

    def context(self) -> Mapping[str, Any]:
        """What every template may use."""
        return {"site": self.site, "viewer": self.viewer, "now": self.now, "fleet": self.fleet}

    def banner(self) -> Part:
        """What is wrong on purpose, or not: on every page."""
        return self.drawn(
            Key("banner"),
            "banners",
            "part_banner.html",
            faults=self.site.faults(),
            trouble=self.site.trouble,
        )

    async def parts(self, keys: Iterable[Key]) -> AsyncIterator[tuple[Key, Part | None]]:
        """These parts, drawn so few at a time that whoever polls for his document gets his turn.

        What is committed meanwhile is sent afterwards: it is newer than the page's revision.
        """
        for number, key in enumerate(list(keys)):
            if number % DRAWN_TOGETHER_MAX == DRAWN_TOGETHER_MAX - 1:
                await asyncio.sleep(0)
            yield key, self.part(key)

    async def html(self, process: str = "") -> str:
        """The whole page, as drawn by this process."""
        revision = self.fleet.revision
        boxes: dict[str, list[Part]] = {"banners": [self.banner()]}
        async for _, part in self.parts(self.keys()):
            if part is not None:
                boxes.setdefault(part.box, []).append(part)
        for parts in boxes.values():
            parts.sort(key=lambda part: part.order)

        def box(name: str) -> Markup:
            # Parts come from templates, in which everything was escaped.
            return Markup("".join(part.html for part in boxes.get(name, ())))  # noqa: S704

        more = {"page": self, "box": box, "process": process, "revision": revision}
        return draw(self.template, {**self.context(), **more})


class NotFoundPage(Page):
    """What is at an address at which nothing is: why, and where to go."""

    template = "not_found.html"

    def __init__(self, site: Site, viewer: Viewer, why: str) -> None:
        super().__init__(site, viewer)
        self.why = why

    @property
    def title(self) -> str:
        """What the browser's tab says."""
        return "Not there"

    def keys(self) -> Iterable[Key]:
        """Nothing that changes."""
        return ()
