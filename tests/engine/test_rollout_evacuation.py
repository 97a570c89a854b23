"""Rule 23: a node is cordoned, its VMs are live-migrated, and who has no place is named."""

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.commands import ApplyFleet, Cordon, Redeploy, ReportReachable, Uncordon
from fairnotice.engine.refusal import Code
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import NodeState, OperationKind, OperationStatus, Power
from tests.engine.story import BATCH, DB, USER, WEB, Story

EVACUATION = OperationKind.EVACUATION
LIVE_MIGRATION = (
    "Virtual machine is being paused because of a memory-preserving Live Migration operation."
)


def evacuate(story: Story, node: str, **more: object):
    """Evacuate a node; the answer."""
    return story.on_node(EVACUATION, node, **more)


def tight(slots: int) -> FleetSpec:
    """Three standalone VMs on n-0, and so many slots on n-1."""
    return FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1", 0, slots)),
        tuple(VmSpec(name, "n-0") for name in ("a", "b", "c")),
    )


def state(story: Story, node: str) -> NodeState:
    """What a person calls the state of the node."""
    return story.node(node).state


def ends(story: Story, request: str) -> tuple[bool, bool]:
    """Whether the evacuation is over, and whether it is incomplete."""
    row = story.fleet.requests[request]
    return row.ended_at is not None, row.incomplete


def test_rule_23_evacuation_cordons_then_migrates_and_leaves_the_node_cordoned():
    """Node-1 at 00:00: three events; at 00:15 they start; done, it is empty and stays cordoned."""
    story = Story()
    answer = evacuate(story, "node-1")
    assert answer.left == ()
    assert state(story, "node-1") is NodeState.CORDONED
    assert story.shows(DB) == (2, [("Freeze", "Scheduled")])
    event = story.only(DB)
    assert (event.description, event.duration_seconds) == (LIVE_MIGRATION, 5)
    assert event.not_before == story.at(minutes=15)
    story.advance(minutes=15)
    assert story.shows(DB) == (3, [("Freeze", "Started")])
    assert story.vm("db").node == "node-1"
    story.done()
    assert "node-1" not in story.fleet.vms_on_node
    assert state(story, "node-1") is NodeState.CORDONED
    assert ends(story, answer.request) == (True, False)
    story.tell(Uncordon(node="node-1"))
    assert state(story, "node-1") is NodeState.IN_SERVICE


@pytest.mark.parametrize(("timing", "seconds"), [(AZURE, 900), (DEV, 15)])
def test_rule_23_evacuation_gives_the_notice_of_a_freeze(timing, seconds):
    """15 minutes in azure, 15 seconds in dev."""
    story = Story(timing=timing)
    evacuate(story, "node-1")
    assert story.only(DB).not_before == story.at(seconds=seconds)


def test_rule_23_each_event_of_an_evacuation_starts_by_its_own_approval():
    """One operation per event: db goes while the others wait."""
    story = Story()
    answer = evacuate(story, "node-1")
    assert len(answer.operations) == len(answer.events) == 3
    story.approve("db")
    assert story.shows(DB) == (3, [("Freeze", "Started")])
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])


def test_rule_23_vms_without_a_place_are_named_and_not_announced():
    """One slot for three VMs: one is told, two are named in the answer."""
    story = Story(tight(1), listening=())
    story.listen("vm:a", "vm:b", "vm:c")
    answer = evacuate(story, "n-0")
    told = [name for name in ("a", "b", "c") if story.events(f"vm:{name}")]
    assert len(told) == 1
    assert set(answer.left) == {"a", "b", "c"} - set(told)
    assert set(story.fleet.requests[answer.request].left) == set(answer.left)
    assert len(answer.operations) == 1


def test_rule_23_an_evacuation_that_left_some_ends_incomplete_and_may_be_repeated():
    """Room comes later: the second evacuation takes the rest, and is complete."""
    story = Story(tight(1), listening=())
    first = evacuate(story, "n-0")
    story.done()
    assert ends(story, first.request) == (True, True)
    assert state(story, "n-0") is NodeState.CORDONED
    nodes = (NodeSpec("n-0"), NodeSpec("n-1", 0, 3))
    vms = tuple(VmSpec(name) for name in ("a", "b", "c"))
    story.tell(ApplyFleet(spec=FleetSpec(nodes, vms)))
    second = evacuate(story, "n-0")
    assert second.left == ()
    story.done()
    assert ends(story, second.request) == (True, False)
    assert story.fleet.vms_on_node == {"n-1": story.fleet.vms_on_node["n-1"]}


def test_rule_23_with_no_place_at_all_nothing_is_announced_and_it_is_incomplete():
    """All are named, nothing is made of it but the cordon."""
    story = Story(FleetSpec((NodeSpec("n-0"),), (VmSpec("db", "n-0"),)))
    answer = evacuate(story, "n-0")
    assert (answer.left, answer.operations, answer.events) == (("db",), (), ())
    assert story.shows(DB) == (1, [])
    assert state(story, "n-0") is NodeState.CORDONED
    assert ends(story, answer.request) == (True, True)


def test_rule_23_a_request_that_made_nothing_is_forgotten_like_any_other():
    """A day later nothing of the empty evacuation is left, nor its key taken."""
    story = Story(FleetSpec((NodeSpec("n-0"),), (VmSpec("db", "n-0"),)))
    evacuate(story, "n-0", idempotency_key="once")
    story.advance(hours=25)
    assert story.fleet.requests == {}
    assert story.fleet.request_by_key == {}


def test_rule_23_repeated_while_under_way_it_takes_only_the_others():
    """The VM that is on its way is not announced twice."""
    story = Story(tight(1), listening=())
    first = evacuate(story, "n-0")
    (moving,) = (impact.vm for impact in story.under_way.values())
    second = evacuate(story, "n-0")
    assert second.operations == ()
    assert set(second.left) == set(first.left) == {"a", "b", "c"} - {moving}


def test_rule_23_a_place_that_is_gone_at_the_start_fails_and_is_incomplete():
    """Room at the request, none at the start: the impact fails, the VM stays (rule 14)."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1")), (VmSpec("db", "n-0"),)))
    answer = evacuate(story, "n-0")
    story.tell(Cordon(node="n-1"))
    story.advance(minutes=15)
    assert story.operation(answer.operations[0]).status is OperationStatus.FAILED
    assert story.vm("db").node == "n-0"
    assert ends(story, answer.request) == (True, True)


def test_rule_23_an_evacuation_that_the_driver_failed_is_incomplete():
    """The VM stays on its node; asked again it is announced again."""
    story = Story()
    answer = evacuate(story, "node-5")
    story.approve("spot_1")
    assert ends(story, answer.request) == (False, False)
    story.failed()
    assert ends(story, answer.request) == (True, True)
    assert story.vm("spot_1").node == "node-5"
    assert evacuate(story, "node-5").operations


def test_rule_23_places_are_found_for_all_at_once():
    """Two VMs of two update domains do not count on the same free node."""
    spec = FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1")),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web")),
        (SetSpec("web"),),
    )
    story = Story(spec)
    answer = evacuate(story, "n-0", force=True)
    assert answer.left == ("w-1",)
    assert [event.resources for event in story.events(WEB)] == [("w-0",)]


def test_rule_23_no_vm_is_put_on_the_evacuated_node_meanwhile():
    """Cordoned from the first moment: a redeploy from elsewhere does not go there."""
    nodes = (NodeSpec("n-0"), NodeSpec("n-1", 0, 1))
    story = Story(FleetSpec(nodes, (VmSpec("db", "n-0"), VmSpec("b", "n-1"))))
    evacuate(story, "n-0")
    refusal = story.refused(Redeploy(id="r", by=USER, vms=("b",)))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)


def test_rule_23_an_empty_node_is_evacuated_by_its_cordon():
    """Nothing to move: it is cordoned, over and complete."""
    story = Story(FleetSpec((NodeSpec("n-0"),)))
    answer = evacuate(story, "n-0")
    assert state(story, "n-0") is NodeState.CORDONED
    assert ends(story, answer.request) == (True, False)


def test_rule_23_a_cordoned_node_can_be_evacuated():
    """Twice cordoned is as good as once."""
    story = Story()
    story.tell(Cordon(node="node-5"))
    assert evacuate(story, "node-5").operations


def test_rule_23_a_stopped_vm_that_stays_behind_makes_it_incomplete():
    """A VM that does not run is in no event; it is still on the node, so the node is not empty."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1")), (VmSpec("db", "n-0"),)))
    story.stop("db")
    story.done()
    answer = evacuate(story, "n-0")
    assert story.vm("db").node == "n-0"
    assert story.vm("db").power is Power.STOPPED
    assert answer.left == ("db",)
    assert ends(story, answer.request) == (True, True)


def test_rule_23_a_node_out_of_reach_or_failed_cannot_be_evacuated():
    """Nothing can be moved from there; nothing has changed, not even the cordon."""
    story = Story()
    story.tell(ReportReachable(node="node-5", reachable=False))
    refusal = story.refused(story.node_command(EVACUATION, "node-5"))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 13)
    story.fail("node-5")
    refusal = story.refused(story.node_command(EVACUATION, "node-5"))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 13)
    refusal = story.refused(story.node_command(EVACUATION, "node-9"))
    assert refusal.code is Code.NOT_FOUND


def test_rule_23_more_notice_may_be_asked_for_less_is_refused():
    """In an hour is fine, in 14 minutes is not, and a pause is no business of an evacuation."""
    story = Story()
    soon = story.node_command(EVACUATION, "node-5", not_before=story.at(minutes=14))
    assert (story.refused(soon).code, story.refused(soon).rule) == (Code.INVALID, 2)
    paused = story.node_command(EVACUATION, "node-5", duration_seconds=9)
    assert story.refused(paused).code is Code.INVALID
    answer = evacuate(story, "node-5", not_before=story.at(hours=1))
    assert story.event(answer.events[0]).not_before == story.at(hours=1)
