"""The addresses that the endpoints of nodes use, and what an operator sees of them."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fairnotice.control import endpoint_shapes as bodies
from fairnotice.control.bodies import Nothing
from fairnotice.control.endpoints import Endpoints
from fairnotice.control.limits import Reach
from fairnotice.control.route import Call, Paging, Route, page_of, part
from fairnotice.control.service import beyond, named
from fairnotice.words import TokenRole

PATH = "/v1/endpoints/{name}"


def _list(call: Call) -> dict[str, Any]:
    query: Paging = call.query
    rows = call.service.fleet.endpoints
    shown = call.service.endpoints.all(beyond(rows, query.after))
    return part(query, rows, shown, "node")


def _one(call: Call) -> bodies.Endpoint:
    row = named("endpoint", call.service.fleet.endpoints, call.name)
    return call.service.endpoints.shown(row)


Says = Callable[[Endpoints, str, Any], Awaitable[object]]


def _said(says: Says) -> Callable[[Call], Awaitable[object]]:
    """What an endpoint says of a node that there is."""

    async def handle(call: Call) -> object:
        node = named("node", call.service.fleet.nodes, call.name).name
        return await says(call.service.endpoints, node, call.body)

    return handle


# What endpoints say: its name, in words, what is done, what is answered, what is taken.
SAID: tuple[tuple[str, str, Says, type, type], ...] = (
    (
        "join",
        "A node has an endpoint: events for its VMs wait until it shows them.",
        lambda endpoints, node, _: endpoints.join(node),
        bodies.Heeded,
        Nothing,
    ),
    (
        "report",
        "What the endpoint shows by now, and what it served lately.",
        lambda endpoints, node, body: endpoints.report(node, body),
        bodies.Heeded,
        bodies.Report,
    ),
    (
        "approve",
        "A VM of the node approves events: all of them, or none.",
        lambda endpoints, node, body: endpoints.approve(node, body),
        bodies.ApprovedHere,
        bodies.ApproveHere,
    ),
    (
        "enable",
        "VMs of the node ask for their document for the first time.",
        lambda endpoints, node, body: endpoints.enable(node, body),
        bodies.EnabledHere,
        bodies.EnableHere,
    ),
    (
        "identity",
        "A VM of the node asks for the token of its managed identity.",
        lambda endpoints, node, body: endpoints.identify(node, body),
        bodies.IdentifiedHere,
        bodies.IdentifyHere,
    ),
)


def _routes() -> Iterable[Route]:
    yield Route(
        "GET",
        "/v1/endpoints",
        "Every node's endpoint that has joined.",
        _list,
        page_of(bodies.Endpoint),
        TokenRole.READER,
        asks=Paging,
    )
    summary = "The endpoint of one node."
    yield Route("GET", PATH, summary, _one, bodies.Endpoint, TokenRole.READER)
    # Not for the endpoint itself: a stolen token must not end the waiting for its node.
    yield Route(
        "DELETE",
        PATH,
        "The endpoint is taken away for good; nobody waits for it any more.",
        _said(lambda endpoints, node, _: endpoints.leave(node)),
        bodies.Heeded,
        TokenRole.OPERATOR,
    )
    for what, summary, says, shows, takes in SAID:
        path = f"{PATH}/{what}"
        needs = TokenRole.ENDPOINT
        yield Route(
            "POST",
            path,
            summary,
            _said(says),
            shows,
            needs,
            takes,
            reach=Reach.NOTHING,
            # The journal says which VM approved, and not who spoke for it; and whoever has the
            # token of a VM's identity may do what that may.
            noted=what in ("approve", "identity"),
        )


ENDPOINT_ROUTES = tuple(_routes())
