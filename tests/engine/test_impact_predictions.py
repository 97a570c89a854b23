"""Rule 13: nodes that will fail, and nodes that come back."""

import pytest

from fairnotice.engine import AZURE, DEV, Code
from fairnotice.engine import commands as ask
from fairnotice.model import Requester
from fairnotice.words import NodeState, OperationKind, OperationStatus, Risk, Role
from tests.engine.story import OPERATOR, SPOT, Story

HEALTH_FEED = Requester("smart", Role.PLATFORM)


# ---- Predicted failure ----

RISKS = [
    (AZURE, Risk.LOW, 7 * 86400),
    (AZURE, Risk.MEDIUM, 86400),
    (AZURE, Risk.HIGH, 600),
    (DEV, Risk.LOW, 60),
    (DEV, Risk.MEDIUM, 30),
    (DEV, Risk.HIGH, 10),
]


@pytest.mark.parametrize(("timing", "risk", "seconds"), RISKS)
def test_rule_13_a_predicted_failure_cordons_its_node_and_gives_the_notice_of_its_risk(
    timing, risk, seconds
):
    """The node takes nobody any more, and its VMs are told until when."""
    story = Story(timing=timing)
    story.predict("node-5", risk=risk)
    assert story.node("node-5").state is NodeState.CORDONED
    event = story.only(SPOT)
    assert (event.type, event.source, event.status) == ("Redeploy", "Platform", "Scheduled")
    assert event.description == "Host server is undergoing maintenance."
    assert event.not_before == story.at(seconds=seconds)


def test_rule_13_a_predicted_failure_leaves_its_node_cordoned():
    """Its VM has been moved away, the prediction is over, and the node stays out of service."""
    story = Story()
    (operation,) = story.predict("node-5", risk=Risk.HIGH).operations
    story.advance(minutes=10)
    story.done("spot_1")
    assert story.operation(operation).status is OperationStatus.COMPLETED
    assert story.vm("spot_1").node != "node-5"
    assert story.node("node-5").state is NodeState.CORDONED
    story.advance(hours=20)
    assert story.node("node-5").state is NodeState.CORDONED


def test_rule_13_a_canceled_prediction_leaves_its_node_cordoned():
    """The operator takes the move back; returning the node is another decision."""
    story = Story()
    (operation,) = story.predict("node-5", risk=Risk.LOW).operations
    story.cancel(operation)
    assert story.node("node-5").state is NodeState.CORDONED


def test_rule_13_the_health_feed_predicts_too_and_an_instant_will_do():
    """The feed knows when: the event says exactly that."""
    story = Story()
    not_before = story.at(hours=3)
    story.tell(
        ask.PredictFailure(id="p", by=HEALTH_FEED, node="node-5", not_before=not_before),
    )
    assert story.only(SPOT).not_before == not_before


def test_rule_13_a_prediction_of_an_empty_node_cordons_it():
    """Nobody to tell, and still nobody shall be put there."""
    story = Story()
    story.evict("spot_1")
    story.advance(seconds=30)
    story.done()
    answer = story.predict("node-5", risk=Risk.LOW)
    assert answer.operations == ()
    assert story.node("node-5").state is NodeState.CORDONED


def test_rule_13_a_second_prediction_of_a_node_repeats_the_first():
    """The feed says it every minute: the promise of the first time stands."""
    story = Story()
    first = story.predict("node-5", risk=Risk.LOW)
    decision = story.unchanged(
        ask.PredictFailure(id="p", by=HEALTH_FEED, node="node-5", risk=Risk.HIGH)
    )
    assert decision.answer.request == first.request
    assert decision.answer.operations == first.operations
    assert decision.answer.events == first.events


def test_rule_13_a_prediction_beside_a_maintenance_is_one_of_its_own():
    """The node has a maintenance announced, and now it is predicted to fail as well."""
    story = Story()
    story.maintain("node-5")
    story.predict("node-5", risk=Risk.LOW)
    assert story.shows(SPOT) == (3, [("Freeze", "Scheduled"), ("Redeploy", "Scheduled")])


def test_rule_13_a_prediction_needs_either_a_risk_or_an_instant():
    """Both, or none, is refused, and the node is not cordoned."""
    story = Story()
    soon = story.at(hours=1)
    for more in ({}, {"risk": Risk.LOW, "not_before": soon}):
        refusal = story.refused(ask.PredictFailure(id="p", by=OPERATOR, node="node-5", **more))
        assert refusal.code is Code.INVALID
        assert "risk" in refusal.why


@pytest.mark.parametrize("seconds", [-1, 0, 599])
def test_rule_13_a_prediction_gives_ten_minutes_at_the_least(seconds):
    """An instant sooner than that is refused; ten minutes are accepted."""
    story = Story()
    command = ask.PredictFailure(
        id="p", by=OPERATOR, node="node-5", not_before=story.at(seconds=seconds)
    )
    refusal = story.refused(command)
    assert (refusal.code, refusal.rule) == (Code.INVALID, 2)
    story.predict("node-5", not_before=story.at(seconds=600))
    assert story.only(SPOT).not_before == story.at(minutes=10)


# ---- Uncordon ----


def test_rule_13_uncordon_returns_a_cordoned_node_to_service():
    """Cordon and uncordon; each twice is as good as once."""
    story = Story()
    story.tell(ask.Cordon(node="node-5"))
    assert story.node("node-5").state is NodeState.CORDONED
    story.unchanged(ask.Cordon(node="node-5"))
    story.tell(ask.Uncordon(node="node-5"))
    assert story.node("node-5").state is NodeState.IN_SERVICE
    story.unchanged(ask.Uncordon(node="node-5"))


def test_rule_13_uncordon_returns_a_repaired_node_to_service():
    """A failed and cordoned node is in service, and takes VMs again."""
    story = Story()
    story.tell(ask.Cordon(node="node-5"))
    story.fail("node-5")
    story.done()
    story.tell(ask.Uncordon(node="node-5"))
    assert story.node("node-5").state is NodeState.IN_SERVICE
    story.maintain("node-5")
    for number in (0, 2, 3, 4):
        story.tell(ask.Cordon(node=f"node-{number}"))
    story.redeploy("db")
    story.approve("db")
    story.done("db")
    assert story.vm("db").node == "node-5"


@pytest.mark.parametrize(
    "command",
    [
        ask.Cordon(node="nowhere"),
        ask.Uncordon(node="nowhere"),
        ask.ReportReachable(node="nowhere", reachable=False),
        ask.FailNode(id="f", by=OPERATOR, node="nowhere"),
        ask.PredictFailure(id="p", by=OPERATOR, node="nowhere", risk=Risk.LOW),
        ask.NodeOperation(id="n", by=OPERATOR, node="nowhere", kind=OperationKind.REPAIR),
    ],
    ids=lambda command: type(command).__name__,
)
def test_rule_13_a_node_that_is_not_there_is_named_in_the_refusal(command):
    """Bad input is told apart from a bad state."""
    refusal = Story().refused(command)
    assert refusal.code is Code.NOT_FOUND
    assert "nowhere" in refusal.why
