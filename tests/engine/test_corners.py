"""Corners of the law where two sentences meet and one was nearly forgotten."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.engine import AZURE, Code, Decision, Forecast
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import ApplyFleet
from fairnotice.engine.effects import BeginImpact
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.words import EventType, OperationKind, Outcome, Power, Risk
from tests.engine.story import DB, OPERATOR, USER, WEB, Story

TWO_NODES = FleetSpec(
    nodes=(NodeSpec("n-0"), NodeSpec("n-1"), NodeSpec("n-2")), vms=(VmSpec("db", "n-0"),)
)


def arriving() -> Story:
    """Db is on its way from n-0 to n-1, which both have endpoints, when n-1 is to be updated."""
    story = Story(TWO_NODES)
    for node in ("n-0", "n-1"):
        story.tell(ask.JoinEndpoint(node=node))
    story.tell(ask.Confirm(node="n-0", revision=story.fleet.revision))
    story.tell(ask.Cordon(node="n-2"))
    story.redeploy("db")
    story.approve("db")
    story.maintain("n-1")
    return story


def test_rule_05_the_endpoint_of_the_node_it_arrives_on_has_to_confirm():
    """What n-0 confirmed says nothing once db is on n-1."""
    story = arriving()
    event = story.events(DB)[-1]
    assert event.unconfirmed == ("n-0",)
    story.tell(ask.Confirm(node="n-0", revision=story.fleet.revision))
    story.done("db")
    assert story.event(event.id).unconfirmed == ("n-1",)
    story.advance(minutes=16)
    assert story.event(event.id).scheduled
    story.tell(ask.Confirm(node="n-1", revision=story.fleet.revision))
    story.notice_passes()
    assert not story.event(event.id).scheduled


def test_rule_05_nobody_waits_for_the_endpoint_of_a_node_that_was_removed():
    """n-0 is taken out of the fleet; its endpoint goes with it."""
    story = arriving()
    story.done("db")
    vms = (VmSpec("db", "n-1"),)
    spec = TWO_NODES._replace(nodes=TWO_NODES.nodes[1:], vms=vms)
    story.tell(ApplyFleet(spec=spec))
    assert "n-0" not in story.fleet.endpoints
    assert not story.fleet.unconfirmed_on_node.get("n-0")


def test_rule_17_what_policy_approves_does_not_wait_and_is_not_past_the_limit():
    """One redeploy waits, one may; a restart under the policy starts at once all the same."""
    story = Story(timing=replace(AZURE, user_operations_max=1))
    story.tell(ask.SetPolicy(scope=WEB, automatically_approve=(EventType.REBOOT,)))
    story.redeploy("web-0")
    answer = story.restart_vm("web-1")
    assert story.operation(answer.operations[0]).started_at is not None


def test_rule_19_a_stop_that_changed_nothing_still_remembers_its_key():
    """Db is stopped already; somebody starts it; the repeated stop is still the old one."""
    story = Story()
    story.stop("db")
    story.done()
    command = ask.Stop(id="s", by=USER, vms=("db",), idempotency_key="k")
    story.tell(command)
    story.start("db")
    story.done()
    story.tell(replace(command, id="again"))
    assert story.vm("db").power is Power.RUNNING
    assert not story.under_way


def test_rule_19_a_failure_told_twice_does_not_fail_a_repaired_node():
    """The key stands for the failure that was known already."""
    story = Story()
    story.fail("node-5")
    story.done()
    command = ask.FailNode(id="f", by=OPERATOR, node="node-5", idempotency_key="k")
    story.tell(command)
    story.tell(ask.Uncordon(node="node-5"))
    story.unchanged(replace(command, id="again"))
    assert story.node("node-5").health == "reachable"


def test_rule_19_a_prediction_repeated_with_a_key_answers_with_the_first():
    """The first prediction's operations, and the key is remembered."""
    story = Story()
    first = story.predict("node-3", risk=Risk.LOW)
    again = story.predict("node-3", risk=Risk.HIGH, idempotency_key="k")
    assert again.operations == first.operations


def test_rule_23_a_repeat_takes_the_vm_whose_move_failed_although_others_still_move():
    """FrontEnd's migration failed, batch_2's is under way: the repeat announces FrontEnd anew."""
    story = Story()
    story.on_node(OperationKind.EVACUATION, "node-3")
    story.advance(minutes=15)
    story.failed("FrontEnd_IN_0")
    again = story.on_node(OperationKind.EVACUATION, "node-3")
    named = [vm for name in again.operations for vm in story.operation(name).vms]
    assert named == ["FrontEnd_IN_0"]
    assert again.left == ()


def dry_run(story: Story, *nodes: str) -> Forecast:
    """What a rollout over these nodes would do."""
    command = ask.StartRollout(
        id="dry", by=OPERATOR, nodes=nodes, kind=OperationKind.HOST_UPDATE, dry_run=True
    )
    decision = story.ask(command)
    assert isinstance(decision, Decision)
    assert isinstance(decision.answer, Forecast)
    return decision.answer


def test_rule_22_a_dry_run_waits_for_what_is_under_way_on_the_node_itself():
    """node-5 is being maintained: it can only be announced after that."""
    story = Story()
    story.maintain("node-5")
    (node,) = dry_run(story, "node-5").order
    assert node.announced_at >= story.at(minutes=15)


def test_rule_22_a_dry_run_over_a_node_out_of_reach_has_no_end():
    """Nobody knows when it comes back."""
    story = Story()
    story.tell(ask.ReportReachable(node="node-2", reachable=False))
    assert dry_run(story, "node-2", "node-5").ends_at is None


def test_rule_10_not_begun_is_believed_once_for_each_question():
    """After a restart the driver says twice that it has not begun; it is begun once."""
    story = Story()
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    not_begun = ask.ReportOutcome(key=f"{operation}/db", outcome=Outcome.NOT_BEGUN)
    story.unchanged(not_begun)
    story.restart()
    begun = story.ask(not_begun)
    assert [type(effect) for effect in begun.effects] == [BeginImpact]
    assert story.unchanged(not_begun).effects == ()


def test_rule_10_under_way_is_an_answer_too():
    """Asked once, the driver says that it goes on; a later "not begun" begins nothing."""
    story = Story()
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    story.restart()
    key = f"{operation}/db"
    story.tell(ask.ReportOutcome(key=key, outcome=Outcome.UNDER_WAY))
    story.unchanged(ask.ReportOutcome(key=key, outcome=Outcome.NOT_BEGUN))


FAR = datetime(9999, 12, 31, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point
BAD = {
    "an endless freeze": ask.NodeOperation(
        id="x", by=OPERATOR, node="node-0", kind=OperationKind.HOST_UPDATE, duration_seconds=10**14
    ),
    "a recovery without end": ask.StartRollout(
        id="x",
        by=OPERATOR,
        nodes=("node-0",),
        kind=OperationKind.HOST_UPDATE,
        recovery_seconds=10**14,
    ),
    "no number": ask.ReportUnserved(scopes=(DB,), seconds=float("nan")),
    "for ever unserved": ask.ReportUnserved(scopes=(DB,), seconds=1e14),
    "the end of time": ask.Restart(id="x", by=USER, vms=("db",), not_before=FAR),
    "heard nobody knows when": ask.ReportServed(heard=(ask.Heard(DB, NAIVE),)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_clock_can_show_is_refused_at_the_door(name):
    """Accepted, it would break a later decision that has nothing to do with it."""
    assert Story().refused(BAD[name]).code is Code.INVALID


def test_rule_02_postponing_to_the_end_of_time_is_refused():
    """The same for an event that is announced."""
    story = Story()
    event = story.restart_vm("db").events[0]
    refusal = story.refused(ask.Postpone(event=event, not_before=FAR, by=OPERATOR))
    assert refusal.code is Code.INVALID


def test_rule_09_a_second_postponement_never_shortens_what_the_first_gave():
    """Shop's event to 40 h, batch's to 2 h: the silent VMs of node-3 are not hit before 40 h."""
    story = Story()
    operation = story.maintain("node-3").operations[0]
    first, second = story.operation(operation).events
    for event, hours in ((first, 40), (second, 2)):
        not_before = story.began + timedelta(hours=hours)
        story.tell(ask.Postpone(event=event, not_before=not_before, by=OPERATOR))
    assert story.operation(operation).asked_not_before == story.at(hours=40)


def test_rule_03_a_request_without_operations_is_forgotten_also_after_a_restart():
    """An evacuation without a place for anybody is remembered for a day, restart or not."""
    story = Story(FleetSpec(nodes=(NodeSpec("n-0"),), vms=(VmSpec("db", "n-0"),)))
    request = story.on_node(OperationKind.EVACUATION, "n-0").request
    story.restart()
    story.advance(hours=25)
    assert request not in story.fleet.requests
