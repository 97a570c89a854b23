"""`decide(fleet, command, now)`: the law, asked one question. It never changes the fleet."""

from collections.abc import Callable
from typing import Any

from fairnotice.engine import (
    approval,
    commands,
    describing,
    downtime,
    enabling,
    ending,
    evacuation,
    fleet_changes,
    forecast,
    forgetting,
    impacts,
    nodes,
    power,
    rollout,
    rollout_commands,
    rollout_nodes,
    sightings,
    users,
)
from fairnotice.engine.answers import Accepted, Decision, Forecast
from fairnotice.engine.commands import Command, NodeOperation, StartRollout, Tick
from fairnotice.engine.documents import move_incarnations
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter, Subject
from fairnotice.engine.fleet import Fleet
from fairnotice.engine.kinds import ROLLED_OUT
from fairnotice.engine.refusal import Code, Refusal, Refused, misfit, refuse
from fairnotice.engine.start import start_what_may
from fairnotice.engine.tables import known_key
from fairnotice.errors import ClockWentBack
from fairnotice.model import Moment
from fairnotice.words import OperationKind, Role


def decide(fleet: Fleet, command: Command, now: Moment) -> Decision | Refusal:
    """What the command changes, or why it is refused. Apply the changes in their order."""
    _must_not_go_back(fleet, command, now)
    draft = Draft(fleet, now)
    try:
        answer = _answer(draft, command)
    except Refused as refused:
        return refused.refusal
    while draft.candidates or draft.ended_operations or draft.failed_operations:
        start_what_may(draft)
        evacuation.follow(draft)
        rollout_nodes.follow(draft)
    rollout.wake_touched(draft)
    move_incarnations(draft)
    return Decision(
        tuple(draft.changes), tuple(draft.effects), answer, tuple(dict.fromkeys(draft.warnings))
    )


def _must_not_go_back(fleet: Fleet, command: Command, now: Moment) -> None:
    """Rule 25: only a new life of the process may begin before the last record."""
    recorded_at = fleet.recorded_at or now.wall
    if now.wall < recorded_at and not isinstance(command, commands.Restarted):
        raise ClockWentBack(f"now is {now.wall}, the last record is of {recorded_at}")


def _answer(draft: Draft, command: Command) -> Accepted | Forecast:
    if isinstance(command, commands.Asked):
        _must_be_allowed(command)
        known = _known(draft, command)
        if known is not None:
            return known
        if command.id in draft.requests or command.id in draft.rollouts:
            refuse(
                Code.CONFLICT,
                f"The id {command.id} is taken.",
                "Give each command an id of its own; repeat one with an idempotency key.",
                rule=19,
            )
    return HANDLERS[type(command)](draft, command)


def _known(draft: Draft, command: commands.Asked) -> Accepted | None:
    """Rule 19: an equal idempotency key of the same requester means the same request."""
    if command.idempotency_key is None:
        return None
    name = draft.request_by_key.get(known_key(command.by, command.idempotency_key))
    if name is None:
        return None
    request = draft.requests.get(name)
    first = draft.rollouts[name] if request is None else request
    if first.fingerprint != users.fingerprint(command):
        refuse(
            Code.CONFLICT,
            f"The idempotency key {command.idempotency_key} stands for another command.",
            "Use a new key for what is not a repeat.",
            rule=19,
        )
    return Accepted(request=name) if request is None else users.answer_again(draft, request)


def _keyed(draft: Draft, command: commands.Keyed) -> Accepted:
    answer = HANDLERS[type(command.command)](draft, command.command)
    assert isinstance(answer, Accepted)
    return users.remember(draft, command, answer)


def _must_be_allowed(command: commands.Asked) -> None:
    """A VM asks for nothing, and nodes are the operator's; the rest is the fronts' to decide."""
    if not command.id or any(sign in command.id for sign in "./"):
        misfit(
            "id",
            f"{command.id!r} is no id: operations and impacts are named after it.",
            "Use a GUID, or anything without a dot or a slash.",
        )
    if command.by.role is Role.VM:
        refuse(Code.FORBIDDEN, "A VM may only approve.", "Ask in the control plane.")
    on_nodes = isinstance(command, commands.OnNode | commands.StartRollout)
    if on_nodes and command.by.role is Role.USER:
        refuse(Code.FORBIDDEN, "Nodes are the operator's.", "Ask an operator.")


def _tick(draft: Draft, command: Tick) -> Accepted:
    for subject in dict.fromkeys(command.subjects):
        LOOKS[subject.matter](draft, subject)
    return Accepted()


def _look_at_request(draft: Draft, subject: Subject) -> None:
    forgetting.forget_request(draft, subject.id)


def _look_at_operation(draft: Draft, subject: Subject) -> None:
    operation = draft.operations.get(subject.id)
    if operation is None:
        return
    if operation.pending:
        draft.consider((operation.id,))
        for event in operation.events:
            ending.consider_terminates(draft, draft.events[event])
    else:
        forgetting.forget_request(draft, operation.request)


def _look_at_impact(draft: Draft, subject: Subject) -> None:
    impacts.limit_passed(draft, subject.id)


def _look_at_event(draft: Draft, subject: Subject) -> None:
    event = draft.events.get(subject.id)
    if event is not None and event.visible and event.settling_since is not None:
        ending.finish(draft, event.operation)


def _look_at_scope(draft: Draft, subject: Subject) -> None:
    enabling.look_at_scope(draft, subject.id)


def _look_at_rollout(draft: Draft, subject: Subject) -> None:
    rollout.look_at_rollout(draft, subject.id)
    forgetting.forget_rollout(draft, subject.id)


def _look_at_parked(draft: Draft, subject: Subject) -> None:
    rollout_id, _, scope = subject.id.partition("/")
    if rollout_id in draft.rollouts:
        rollout.look_at_parked(draft, rollout_id, scope)


def _node_operation(draft: Draft, command: NodeOperation) -> Accepted:
    if command.kind not in ROLLED_OUT:
        misfit(
            "impact",
            f"{command.kind} is nothing an operator plans on a node.",
            f"Choose one of {', '.join(ROLLED_OUT)}.",
        )
    if command.kind is OperationKind.EVACUATION:
        return evacuation.evacuate(draft, command)
    return nodes.node_operation(draft, command)


def _start_rollout(draft: Draft, command: StartRollout) -> Accepted | Forecast:
    if command.dry_run:
        return forecast.forecast(draft, command)
    return rollout_commands.start_rollout(draft, command)


LOOKS: dict[Matter, Callable[[Draft, Subject], None]] = {
    Matter.REQUEST: _look_at_request,
    Matter.OPERATION: _look_at_operation,
    Matter.IMPACT: _look_at_impact,
    Matter.EVENT: _look_at_event,
    Matter.SCOPE: _look_at_scope,
    Matter.ROLLOUT: _look_at_rollout,
    Matter.PARKED: _look_at_parked,
}

HANDLERS: dict[type, Callable[[Draft, Any], Accepted | Forecast]] = {
    commands.Restart: users.restart,
    commands.Redeploy: users.redeploy,
    commands.Evict: users.evict,
    commands.Delete: users.delete,
    commands.ScaleIn: users.scale_in,
    commands.Cancel: users.cancel,
    commands.Stop: power.stop,
    commands.Start: power.start,
    commands.Deallocate: power.deallocate,
    commands.NodeOperation: _node_operation,
    commands.PredictFailure: nodes.predict_failure,
    commands.FailNode: nodes.fail_node,
    commands.Cordon: nodes.cordon,
    commands.Uncordon: nodes.uncordon,
    commands.ReportReachable: nodes.report_reachable,
    commands.ReportVm: sightings.report_vm,
    commands.StartRollout: _start_rollout,
    commands.PauseRollout: rollout_commands.pause_rollout,
    commands.ResumeRollout: rollout_commands.resume_rollout,
    commands.CancelRollout: rollout_commands.cancel_rollout,
    commands.Approve: approval.approve,
    commands.Postpone: approval.postpone,
    commands.Release: approval.release,
    commands.Keyed: _keyed,
    commands.JoinEndpoint: approval.join_endpoint,
    commands.LeaveEndpoint: approval.leave_endpoint,
    commands.Confirm: approval.confirm,
    commands.HearEndpoint: approval.hear_endpoint,
    commands.ReportServed: enabling.report_served,
    commands.ReportUnserved: enabling.report_unserved,
    commands.ReportOutcome: impacts.report_outcome,
    commands.Tick: _tick,
    commands.Restarted: downtime.restarted,
    commands.ApplyFleet: fleet_changes.apply_fleet,
    commands.SetPolicy: fleet_changes.set_policy,
    commands.SetTerminateNotice: fleet_changes.set_terminate_notice,
    commands.Describe: describing.describe,
    commands.ScaleOut: describing.scale_out,
}
