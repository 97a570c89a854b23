"""Rule 14: where a VM may be put, when that is chosen, and what happens where there is no place."""

import ast
import inspect

import pytest

from fairnotice.engine import Code, placement
from fairnotice.engine import commands as ask
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    OperationKind,
    OperationStatus,
    Power,
    Risk,
)
from tests.engine.story import DB, USER, Story

OTHER = "vm:other"


def pair(*vms: VmSpec, capacity: int = 2) -> FleetSpec:
    """Two nodes, and the set web with these VMs; `a` is crowded, `b` has this much room."""
    return FleetSpec(
        nodes=(NodeSpec("a", 0), NodeSpec("b", 1, capacity)),
        availability_sets=(SetSpec("web"),),
        vms=vms,
    )


def db_alone(**more) -> Story:
    """Db on node a; node b is empty."""
    return Story(pair(VmSpec("db", "a"), **more))


def redeploy_of(*vms: str) -> ask.Redeploy:
    """A user asks for it."""
    return ask.Redeploy(id="redeploy", by=USER, vms=vms)


# ---- What closes a node ----


def fill(story: Story) -> None:
    """Put two more VMs on node b."""
    spec = pair(VmSpec("db", "a"), VmSpec("x", "b"), VmSpec("y", "b"))
    story.tell(ask.ApplyFleet(spec=spec))


def occupy(story: Story) -> None:
    """Announce a maintenance of node b, whose only VM listens."""
    story.tell(ask.ApplyFleet(spec=pair(VmSpec("db", "a"), VmSpec("other", "b"))))
    story.listen(OTHER)
    story.maintain("b")


CLOSED = {
    "cordoned": lambda story: story.tell(ask.Cordon(node="b")),
    "unreachable": lambda story: story.tell(ask.ReportReachable(node="b", reachable=False)),
    "failed": lambda story: story.fail("b"),
    "full": fill,
    "has a live node operation": occupy,
}


@pytest.mark.parametrize("close", CLOSED.values(), ids=CLOSED)
def test_rule_14_no_vm_is_put_on_a_closed_node(close):
    """Node b is the only other one; while it is closed a user's redeploy is refused."""
    story = db_alone()
    close(story)
    refusal = story.refused(redeploy_of("db"))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert "db" in refusal.why
    assert story.events(DB) == ()


def test_rule_14_a_node_in_service_with_room_takes_it():
    """The counterpart: node b is open, and db goes there."""
    story = db_alone()
    story.redeploy("db")
    story.approve("db")
    story.done("db")
    assert story.vm("db").node == "b"


def test_rule_14_no_vm_is_put_beside_another_update_domain_of_its_scope():
    """Web-1 of another update domain is on b: web-0 may not go there, a stranger may."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("db", "a"),
            VmSpec("web-1", "b", availability_set="web"),
        )
    )
    refusal = story.refused(redeploy_of("web-0"))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    story.redeploy("db")


def test_rule_14_a_vm_may_be_put_beside_its_own_update_domain():
    """Both are in update domain 3."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web", update_domain=3),
            VmSpec("web-1", "b", availability_set="web", update_domain=3),
        )
    )
    story.redeploy("web-0")
    story.approve("web-1")
    story.done()
    assert story.vm("web-0").node == "b"


def test_rule_14_a_stopped_vm_keeps_its_slot_and_its_update_domain():
    """It does not run, and still nobody else is put in its place."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("db", "a"),
            VmSpec("web-1", "b", availability_set="web"),
            capacity=1,
        )
    )
    story.stop("web-1")
    story.done()
    story.refused(redeploy_of("web-0"))
    story.refused(redeploy_of("db"))
    story.deallocate("web-1")
    story.done()
    story.redeploy("web-0")


def test_rule_14_a_node_operation_closes_its_node_until_it_is_over():
    """Announced and under way node b takes nobody; then it does."""
    story = db_alone()
    occupy(story)
    story.advance(minutes=15)
    story.refused(redeploy_of("db"))
    story.done("other")
    story.redeploy("db")


# ---- Checked at the request, chosen and reserved at the start ----


def test_rule_14_room_is_checked_for_all_vms_of_a_command_together():
    """Node b has two slots: two may be redeployed by one command, three may not."""
    story = Story(pair(VmSpec("db", "a"), VmSpec("x", "a"), VmSpec("y", "a")))
    refusal = story.refused(redeploy_of("db", "x", "y"))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert len(story.redeploy("db", "x").operations) == 2


def test_rule_14_two_update_domains_of_one_command_do_not_count_on_one_node():
    """Each of them alone has a place; together they have not."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("web-1", "a", availability_set="web"),
        )
    )
    story.refused(redeploy_of("web-0", "web-1"))
    story.redeploy("web-0")


def test_rule_14_the_place_is_chosen_at_the_start_and_not_at_the_request():
    """Node b is cordoned after the request, node c uncordoned: c it is."""
    story = Story(
        FleetSpec(
            nodes=(NodeSpec("a"), NodeSpec("b"), NodeSpec("c")),
            vms=(VmSpec("db", "a"),),
        )
    )
    story.tell(ask.Cordon(node="c"))
    story.redeploy("db")
    story.tell(ask.Uncordon(node="c"))
    story.tell(ask.Cordon(node="b"))
    story.approve("db")
    (impact,) = story.under_way.values()
    assert (impact.source, impact.target) == ("a", "c")


def test_rule_14_the_place_is_reserved_at_the_start():
    """One slot: once db is on its way there, nobody else is promised it."""
    story = Story(pair(VmSpec("db", "a"), VmSpec("other", "a"), capacity=1))
    story.redeploy("db")
    story.approve("db")
    refusal = story.refused(redeploy_of("other"))
    assert refusal.code is Code.NO_ROOM
    story.failed("db")
    story.redeploy("other")


def test_rule_14_a_reserved_place_keeps_other_update_domains_away():
    """Web-0 is on its way to b; web-1 of another update domain must not follow it."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("web-1", "a", availability_set="web"),
        )
    )
    story.redeploy("web-0")
    story.approve("web-0")
    assert story.refused(redeploy_of("web-1")).rule == 14


def test_rule_14_room_that_is_gone_at_the_start_fails_the_impact():
    """Node b was cordoned after the request: the event is shown Started, and db stays."""
    story = db_alone()
    (operation,) = story.redeploy("db").operations
    story.tell(ask.Cordon(node="b"))
    event = story.only(DB)
    story.advance(minutes=10)
    assert story.operation(operation).status is OperationStatus.FAILED
    (impact,) = story.fleet.impacts.values()
    assert impact.status is ImpactStatus.FAILED
    assert "no node" in impact.reason
    assert not story.under_way
    assert story.vm("db").node == "a"
    assert story.vm("db").running
    assert story.event(event.id).status is EventStatus.COMPLETED
    # Scheduled at 2, Started at 3, gone at 4: a VM can see each.
    assert story.shows(DB) == (4, [])


def test_rule_14_of_two_that_were_promised_one_slot_the_second_fails():
    """Both were accepted, each had a place; the first to start has it."""
    story = Story(pair(VmSpec("db", "a"), VmSpec("other", "a"), capacity=1))
    story.listen(OTHER)
    (first,) = story.redeploy("db").operations
    (second,) = story.redeploy("other").operations
    story.approve("db")
    story.approve("other")
    assert story.operation(first).status is OperationStatus.STARTED
    assert story.operation(second).status is OperationStatus.FAILED
    story.done()
    assert (story.vm("db").node, story.vm("other").node) == ("b", "a")


# ---- Nobody's redeploy, a platform's, a failure's ----


@pytest.mark.parametrize("announced", ["predicted failure", "migration"])
def test_rule_14_a_platforms_move_without_a_place_fails_and_is_counted(announced):
    """It is not refused: the VM is told, stays where it is, and the operation has failed."""
    story = db_alone()
    story.tell(ask.Cordon(node="b"))
    if announced == "migration":
        (operation,) = story.on_node(OperationKind.MIGRATION, "a").operations
    else:
        (operation,) = story.predict("a", risk=Risk.HIGH).operations
    assert story.only(DB).status is EventStatus.SCHEDULED
    story.approve("db")
    assert story.events(DB) == ()
    failed = story.operation(operation)
    assert failed.status is OperationStatus.FAILED
    assert "1 of 1" in failed.reason
    assert (story.vm("db").node, story.vm("db").power) == ("a", Power.RUNNING)


def last_reason(story: Story) -> str:
    """Why the impact that ended last has failed."""
    return list(story.fleet.impacts.values())[-1].reason


def test_rule_14_a_move_without_a_place_says_why_at_the_request_and_when_it_failed():
    """Web-1 of another update domain is on b: who asks is warned, who looks later reads it."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web", update_domain=0),
            VmSpec("web-1", "b", availability_set="web", update_domain=1),
        )
    )
    why = "a is where it is; b holds update domain 1 of availability-set:web"
    story.on_node(OperationKind.MIGRATION, "a")
    (warning,) = story.decisions[-1].warnings
    assert warning.startswith(f"No node may take web-0 now: {why}.")
    story.approve("web-0")
    assert last_reason(story) == f"no node may take it: {why}"


def test_rule_14_nobody_is_warned_of_a_move_that_has_a_place():
    """Node b is open; an evacuation names whom it leaves, and announces nothing for them."""
    story = db_alone()
    story.on_node(OperationKind.MIGRATION, "a")
    assert story.decisions[-1].warnings == ()
    story.cancel(story.only(DB).id)
    story.tell(ask.Cordon(node="b"))
    assert story.on_node(OperationKind.EVACUATION, "a").left == ("db",)
    assert story.decisions[-1].warnings == ()


def test_rule_14_of_many_nodes_it_is_said_how_many_for_which_reason():
    """Two are full, two hold another update domain, one is cordoned, and one is for db."""
    story = Story(
        FleetSpec(
            nodes=(
                NodeSpec("a"),
                *(NodeSpec(f"full-{n}", capacity=1) for n in range(2)),
                NodeSpec("open", capacity=1),
                *(NodeSpec(f"web-{n}") for n in range(2)),
                NodeSpec("closed"),
            ),
            availability_sets=(SetSpec("web"),),
            vms=(
                VmSpec("db", "a"),
                VmSpec("web-0", "a", availability_set="web", update_domain=0),
                *(VmSpec(f"other-{n}", f"full-{n}") for n in range(2)),
                *(VmSpec(f"web-{n + 1}", f"web-{n}", availability_set="web") for n in range(2)),
            ),
        )
    )
    story.tell(ask.Cordon(node="closed"))
    story.on_node(OperationKind.MIGRATION, "a", force=True)
    (warning,) = story.decisions[-1].warnings
    assert "web-0" in warning
    for told in (
        "2 are full",
        "2 hold another update domain of availability-set:web",
        "1 is cordoned",
        "1 is where it is",
        "1 is needed for another VM of this move",
    ):
        assert told in warning


def first_words_of_reasons() -> set[str]:
    """With which word each reason begins why a node may not take a VM."""
    found = set()
    for function in (placement.why_closed, placement._why_not):
        for node in ast.walk(ast.parse(inspect.getsource(function))):
            match node:
                case ast.Return(ast.Constant(str(said)) | ast.JoinedStr([ast.Constant(said), *_])):
                    found.add(said.partition(" ")[0])
                case ast.Return(value):
                    # What the other one of the two says.
                    assert ast.unparse(value) == "closed"
    return found - {""}


def test_rule_14_every_reason_can_be_told_of_several_nodes():
    """Each begins with a verb of which the plural is known: one without would end the decision."""
    words = first_words_of_reasons()
    assert "is" in words
    assert words <= set(placement._OF_SEVERAL)


def test_rule_14_of_many_vms_without_a_place_three_are_named():
    """Five VMs of node a, and no other node: the warnings stay short."""
    story = Story(
        FleetSpec(nodes=(NodeSpec("a"),), vms=tuple(VmSpec(f"vm-{n}", "a") for n in range(5)))
    )
    story.predict("a", risk=Risk.HIGH)
    told = [text for decision in story.decisions for text in decision.warnings]
    assert len(told) == 4
    assert told[0].startswith("No node may take vm-0 now: a is where it is.")
    assert "2 more" in told[-1]


def test_rule_14_a_vm_of_a_failed_node_is_told_that_its_own_has_failed():
    """Nobody would look for it where it is."""
    story = db_alone()
    story.tell(ask.Cordon(node="b"))
    story.fail("a")
    assert last_reason(story) == "no node may take it: a is failed; b is cordoned"


def test_rule_14_after_a_sudden_failure_the_update_domain_rule_yields_with_a_warning():
    """Node a fails, and b holds another update domain: web-0 goes there, and a person is told."""
    story = Story(
        pair(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("web-1", "b", availability_set="web"),
        )
    )
    story.fail("a")
    assert [impact.target for impact in story.under_way.values()] == ["b"]
    told = [text for decision in story.decisions for text in decision.warnings]
    assert any("web-0" in text and "update domain" in text for text in told)
    story.done()
    assert story.vm("web-0").node == "b"


def test_rule_14_the_update_domain_rule_does_not_yield_while_there_is_another_place():
    """Node c is free: it is taken, and nobody needs a warning."""
    story = Story(
        FleetSpec(
            nodes=(NodeSpec("a"), NodeSpec("b"), NodeSpec("c")),
            availability_sets=(SetSpec("web"),),
            vms=(
                VmSpec("web-0", "a", availability_set="web"),
                VmSpec("web-1", "b", availability_set="web"),
            ),
        )
    )
    story.fail("a")
    assert [impact.target for impact in story.under_way.values()] == ["c"]
    assert not any(decision.warnings for decision in story.decisions)


def test_rule_14_after_a_failure_nothing_else_yields():
    """Node b is cordoned: no update domain matters then, there is no place at all."""
    story = db_alone()
    story.tell(ask.Cordon(node="b"))
    (operation,) = story.fail("a").operations
    assert (story.vm("db").node, story.vm("db").power) == (None, Power.STOPPED)
    assert story.operation(operation).status is OperationStatus.FAILED
    assert any("db" in text for decision in story.decisions for text in decision.warnings)


def test_rule_14_a_vm_without_any_place_is_stopped_without_node_until_started():
    """The event appears Started and goes; db rests until there is room and somebody starts it."""
    story = db_alone()
    story.tell(ask.Cordon(node="b"))
    story.fail("a")
    # Started at 2, gone at 3.
    assert story.shows(DB) == (3, [])
    refusal = story.refused(ask.Start(id="s", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    story.tell(ask.Uncordon(node="b"))
    story.advance(hours=1)
    assert story.vm("db").power is Power.STOPPED
    story.start("db")
    story.done("db")
    assert (story.vm("db").node, story.vm("db").power) == ("b", Power.RUNNING)


def test_rule_14_of_two_vms_of_a_failed_node_the_second_may_find_no_place():
    """One slot: db is moved, other is stopped, each as its own impact says."""
    story = Story(pair(VmSpec("db", "a"), VmSpec("other", "a"), capacity=1))
    (operation,) = story.fail("a").operations
    story.done()
    assert story.vm("db").node == "b"
    assert (story.vm("other").node, story.vm("other").power) == (None, Power.STOPPED)
    assert "1 of 2" in story.operation(operation).reason


def test_rule_14_a_vm_that_the_driver_could_not_move_after_a_failure_is_stopped_too():
    """Its node is gone, so it has no place any more."""
    story = db_alone()
    story.fail("a")
    story.failed("db")
    assert (story.vm("db").node, story.vm("db").power) == (None, Power.STOPPED)


def test_rule_14_a_migrating_vm_is_on_its_source_until_done():
    """Under way it counts on both nodes and is on the first."""
    story = Story(pair(VmSpec("db", "a"), capacity=1))
    story.on_node(OperationKind.MIGRATION, "a")
    story.approve("db")
    assert story.vm("db").node == "a"
    assert story.fleet.used_slots("b") == 1
    story.done("db")
    assert story.vm("db").node == "b"
    assert story.fleet.used_slots("a") == 0


@pytest.mark.parametrize("ending", ["failed", "timed out"])
def test_rule_14_a_vm_that_did_not_arrive_stays_and_gives_its_slot_back(ending):
    """The move ended otherwise: db is on a, and b has its slot again."""
    story = Story(pair(VmSpec("db", "a"), capacity=1))
    story.redeploy("db")
    story.approve("db")
    if ending == "failed":
        story.failed("db")
    else:
        story.advance(minutes=20)
    assert story.vm("db").node == "a"
    assert story.fleet.used_slots("b") == 0


def test_rule_14_a_new_vm_without_a_node_is_placed_by_the_same_rule():
    """Declared without a node it finds one, is kept away from b, and is refused without any."""
    vms = (VmSpec("db", "a"), VmSpec("new"))
    story = db_alone()
    story.tell(ask.Cordon(node="a"))
    story.tell(ask.ApplyFleet(spec=pair(*vms)))
    assert story.vm("new").node == "b"
    story.tell(ask.Cordon(node="b"))
    refusal = story.refused(ask.ApplyFleet(spec=pair(*vms, VmSpec("newer"))))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert "newer" in refusal.why
