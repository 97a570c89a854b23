"""The addresses of nodes and rollouts, which are the operator's."""

from collections.abc import Iterable
from functools import partial

from fairnotice.control import bodies, shapes
from fairnotice.control.route import Call, Handler, Memory, Route, lists
from fairnotice.control.service import ROLLOUT_COMMANDS
from fairnotice.words import TokenRole


async def _on_node(what: str, call: Call) -> object:
    return await call.service.on_node(what, call.name, call.who, call.body)


async def _maintain(call: Call) -> object:
    return await call.service.on_node(call.body.impact, call.name, call.who, call.body)


async def _start_rollout(call: Call) -> object:
    return await call.service.start_rollout(call.who, call.body)


async def _steer(what: str, call: Call) -> object:
    return await call.service.steer_rollout(what, call.name, call.who)


def _operations() -> Iterable[Route]:
    path = "/v1/nodes/{name}"
    deeds: tuple[tuple[str, str, Handler, type], ...] = (
        ("maintain", "Freeze the VMs of a node, or reboot it.", _maintain, bodies.Maintain),
        ("migrate", "Live-migrate the VMs of a node.", partial(_on_node, "migrate"), bodies.OnNode),
        ("repair", "Repair a node at once.", partial(_on_node, "repair"), bodies.OnNode),
        (
            "evacuate",
            "Cordon a node and move its VMs away.",
            partial(_on_node, "evacuate"),
            bodies.OnNode,
        ),
        (
            "predict-failure",
            "A node is going to fail.",
            lambda call: call.service.predict_failure(call.name, call.who, call.body),
            bodies.PredictFailure,
        ),
        (
            "fail",
            "A node has failed.",
            lambda call: call.service.fail_node(call.name, call.who),
            bodies.Nothing,
        ),
        (
            "cordon",
            "Put no VM on a node.",
            lambda call: call.service.cordon(call.name, call.who, cordoned=True),
            bodies.Nothing,
        ),
        (
            "uncordon",
            "Return a node to service.",
            lambda call: call.service.cordon(call.name, call.who, cordoned=False),
            bodies.Nothing,
        ),
    )
    for what, summary, handle, takes in deeds:
        yield Route(
            "POST",
            f"{path}/{what}",
            summary,
            handle,
            shapes.Accepted,
            TokenRole.OPERATOR,
            takes,
            status=202,
            memory=Memory.LAW,
        )


def _rollouts() -> Iterable[Route]:
    yield Route(
        "POST",
        "/v1/rollouts",
        "The same operation on many nodes; a dry run is answered by a forecast.",
        _start_rollout,
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.StartRollout,
        status=202,
        memory=Memory.LAW,
        foresees=shapes.Forecast,
    )
    for what in ROLLOUT_COMMANDS:
        yield Route(
            "POST",
            f"/v1/rollouts/{{name}}/{what}",
            f"{what.capitalize()} a rollout.",
            partial(_steer, what),
            shapes.Accepted,
            TokenRole.OPERATOR,
            bodies.Nothing,
            status=202,
            memory=Memory.LAW,
        )


NODE_ROUTES: tuple[Route, ...] = (
    *lists("nodes", "node", shapes.Node, "name", what="node"),
    *_operations(),
)
ROLLOUT_ROUTES: tuple[Route, ...] = (
    *lists("rollouts", "rollout", shapes.Rollout, "id", what="rollout"),
    *_rollouts(),
)
