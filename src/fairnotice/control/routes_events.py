"""The addresses of events and operations."""

from collections.abc import Iterable
from functools import partial

from fairnotice.control import bodies, shapes
from fairnotice.control.limits import Reach
from fairnotice.control.route import KEPT, Call, EventPaging, Memory, Route, lists, page, page_of
from fairnotice.words import TokenRole


async def _on_event(what: str, call: Call) -> object:
    return await getattr(call.service, what)(call.name, call.who)


def _events() -> Iterable[Route]:
    path = "/v1/events/{name}"
    yield Route(
        "GET",
        "/v1/events",
        f"Every event{KEPT}.",
        lambda call: page(call, "events", "id", status=call.query.status),
        page_of(shapes.Event),
        TokenRole.READER,
        asks=EventPaging,
        reach=Reach.EVENT,
    )
    yield Route(
        "GET",
        path,
        "One event.",
        lambda call: call.service.event(call.name),
        shapes.Event,
        TokenRole.READER,
        reach=Reach.EVENT,
    )
    yield Route(
        "GET",
        f"{path}/history",
        "The story of an event.",
        lambda call: call.service.history(call.name),
        shapes.History,
        TokenRole.READER,
        reach=Reach.EVENT,
    )
    for what, summary in (
        ("approve", "Give the go-ahead."),
        ("cancel", "Take an operation back, with all its events."),
        ("release", "Do not wait for endpoints that have not confirmed it."),
    ):
        yield Route(
            "POST",
            f"{path}/{what}",
            summary,
            partial(_on_event, what),
            shapes.Accepted,
            TokenRole.OPERATOR,
            bodies.Nothing,
            status=202,
            memory=Memory.LAW,
            reach=Reach.EVENT,
        )
    yield Route(
        "POST",
        f"{path}/postpone",
        "Give more notice.",
        lambda call: call.service.postpone(call.name, call.who, call.body),
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.Postpone,
        status=202,
        memory=Memory.LAW,
        reach=Reach.EVENT,
    )


EVENT_ROUTES: tuple[Route, ...] = (
    *_events(),
    *lists(
        "operations",
        "operation",
        shapes.Operation,
        "id",
        what="operation",
        which=KEPT,
        reach=Reach.OPERATION,
    ),
    Route(
        "POST",
        "/v1/operations/{name}/cancel",
        "Take an operation back, or what is left of a request, with all its events.",
        lambda call: call.service.cancel_operation(call.name, call.who),
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.Nothing,
        status=202,
        memory=Memory.LAW,
        reach=Reach.OPERATION,
    ),
)
