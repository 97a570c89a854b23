"""What an address of the native API is: what it takes, shows and does, and who may ask there."""

from collections.abc import Callable, Container, Iterable
from enum import Enum, auto
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec

from fairnotice.control import bodies, shapes
from fairnotice.control.limits import Reach
from fairnotice.control.service import Only, Service, Who, everything
from fairnotice.words import EventStatus, TokenRole

LIMIT_MAX = 1_000
REVISION_MAX = 2**63 - 1
# Which events and operations are listed.
KEPT = " of the last day, and all that are not over"


class Paging(shapes.Body):
    """Which part of a list: at most so many, after the one of this name."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 100
    after: str = ""


class EventPaging(Paging):
    """Which part of the list of events, and only of those in one status."""

    status: EventStatus | None = None


class After(shapes.Body):
    """From which revision of the feed on."""

    after: Annotated[int, msgspec.Meta(ge=0, le=REVISION_MAX)] = 0


class Foresee(shapes.Body):
    """Whether it is only asked what would happen."""

    foresee: bool = False


class Version(shapes.Body, rename={"api_version": "api-version"}):
    """Which api-version of the document."""

    api_version: str = "2020-07-01"


class Call(NamedTuple):
    """One request, understood."""

    service: Service
    who: Who
    # What stands for {name} in the path.
    name: str
    body: Any
    query: Any
    # Which of the things in a list are shown to who asks, by name.
    shows: Only = everything


Handler = Callable[[Call], Any]


class Memory(Enum):
    """Who remembers the idempotency keys of an address."""

    # The law, durably (rule 19).
    LAW = auto()
    # The process, for as long as it lives (control/keys.py).
    PROCESS = auto()
    # Nothing is changed there, or declared as a whole: it may be asked again as it is.
    NOBODY = auto()


class Route(NamedTuple):
    """One address and method."""

    method: str
    path: str
    summary: str
    handle: Handler
    shows: Any
    # The least role that may ask. Nobody forgets to say so: there is no default.
    needs: TokenRole
    takes: type | None = None
    asks: type = bodies.Nothing
    status: int = 200
    memory: Memory = Memory.NOBODY
    # What is answered instead, with 200, where it was only asked what would happen.
    foresees: type | None = None
    # What {name}, or each thing of the list, or each of the body's `vms` is: a token with limits
    # may ask for those within them. Where nothing is said, it may not ask at all.
    reach: Reach = Reach.CLOUD
    # What is answered, where that is no JSON: `handle` then returns the whole answer.
    media_type: str = "application/json"
    # Whether it is written down even when an endpoint asks, whose reports are not.
    noted: bool = False

    @property
    def always_noted(self) -> bool:
        """Whether all that is asked here is in the audit: also what is only looked at."""
        # Who takes a backup has everything, and who lists tokens knows whose to steal.
        return self.noted or self.needs is TokenRole.ADMIN


def foreseeable(route: Route) -> Route:
    """Whoever may do what an address does may first ask there what would come of it."""
    if route.status != HTTPStatus.ACCEPTED or route.foresees is not None:
        return route
    return route._replace(asks=Foresee, foresees=shapes.Foresight)


def page(call: Call, table: str, key: str, **more: object) -> dict[str, Any]:
    """One part of a list of rows, and where the next begins."""
    query: Paging = call.query
    known = getattr(call.service.fleet, table)
    if query.after and not call.shows(query.after):
        # Whoever may not see it is told what he would be told if it were not there.
        known = ()
    items = getattr(call.service, table)(query.after, only=call.shows, **more)
    return part(query, known, items, key)


def part(query: Paging, known: Container[str], items: Iterable[Any], key: str) -> dict[str, Any]:
    """So many of the items after the one that was asked for, if that is still known."""
    if query.after and query.after not in known:
        # It was there a page ago: saying nothing would look like the end of the list.
        raise msgspec.ValidationError(f"{query.after} is not there; begin anew - at `$.after`")
    shown = list(islice(items, query.limit + 1))
    more_to_come = len(shown) > query.limit
    shown = shown[: query.limit]
    return {"items": shown, "next": getattr(shown[-1], key) if more_to_come else None}


def page_of(shape: type) -> type:
    """The type of one part of a list of these."""
    fields = [("items", list[shape]), ("next", str | None)]  # type: ignore[valid-type]
    return msgspec.defstruct(f"{shape.__name__}Page", fields)


def lists(
    plural: str,
    singular: str,
    shape: type,
    key: str,
    *,
    what: str,
    which: str = "",
    reach: Reach = Reach.CLOUD,
) -> tuple[Route, Route]:
    """The list of a kind of thing, and one of them."""

    def many(call: Call) -> dict[str, Any]:
        return page(call, plural, key)

    def one(call: Call) -> object:
        return getattr(call.service, singular)(call.name)

    path = f"/v1/{plural.replace('_', '-')}"
    needs = TokenRole.READER
    every = f"Every {what}{which}."
    return (
        Route("GET", path, every, many, page_of(shape), needs, asks=Paging, reach=reach),
        Route("GET", f"{path}/{{name}}", f"One {what}.", one, shape, needs, reach=reach),
    )
