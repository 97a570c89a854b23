"""Rule 4: which events an operation makes, and the update domains that keep them apart."""

import pytest

from fairnotice.engine.commands import ApplyFleet
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.words import OperationKind, Risk
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB, Story, sample

FOR_ALL = [OperationKind.HOST_UPDATE, OperationKind.HOST_REBOOT, OperationKind.REPAIR]
APART = [OperationKind.MIGRATION, OperationKind.EVACUATION, OperationKind.PREDICTED_FAILURE]


def on_node(story: Story, kind: OperationKind, node: str) -> tuple[str, ...]:
    """The operations that this makes."""
    if kind is OperationKind.PREDICTED_FAILURE:
        return story.predict(node, risk=Risk.MEDIUM).operations
    return story.on_node(kind, node).operations


def one_set(*vms: VmSpec, nodes: int = 7) -> FleetSpec:
    """An availability set `web` of these VMs."""
    return FleetSpec(
        nodes=tuple(NodeSpec(f"node-{n}", n % 3) for n in range(nodes)),
        availability_sets=(SetSpec("web"),),
        vms=vms,
    )


def web(name: str, node: str = "node-0", update_domain: int | None = None) -> VmSpec:
    """A VM of the set."""
    return VmSpec(name, node, availability_set="web", update_domain=update_domain)


# ---- A node operation ----


@pytest.mark.parametrize("kind", [*FOR_ALL, *APART])
def test_rule_04_a_node_operation_makes_one_event_per_scope(kind):
    """node-3 holds a batch VM and two shop VMs: batch sees its own, shop sees its own."""
    story = Story()
    on_node(story, kind, "node-3")
    assert story.only(BATCH).resources == ("batch_2",)
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    assert story.only(BATCH).id != story.only(SHOP).id
    for elsewhere in (WEB, SPOT, DB):
        assert story.shows(elsewhere) == (1, [])


@pytest.mark.parametrize("kind", FOR_ALL)
def test_rule_04_maintenance_and_repair_are_one_operation_for_all(kind):
    """The batch approves, shop does not: nothing starts, for it is one operation."""
    story = Story()
    (operation,) = on_node(story, kind, "node-3")
    assert {story.only(scope).operation for scope in (BATCH, SHOP)} == {operation}
    story.approve("batch_2")
    assert story.shows(BATCH)[1] == [(story.only(BATCH).type.value, "Scheduled")]
    story.approve("FrontEnd_IN_1")
    assert story.only(BATCH).started_at == story.only(SHOP).started_at == story.began


@pytest.mark.parametrize("kind", APART)
def test_rule_04_what_moves_vms_is_one_operation_per_event(kind):
    """The batch approves and goes; shop goes with both its VMs when shop approves."""
    story = Story()
    first, second = on_node(story, kind, "node-3")
    assert {story.operation(first).vms, story.operation(second).vms} == {
        ("batch_2",),
        ("FrontEnd_IN_0", "BackEnd_IN_0"),
    }
    story.approve("batch_0")
    assert {impact.vm for impact in story.under_way.values()} == {"batch_2"}
    assert story.only(SHOP).scheduled
    story.advance(minutes=1)
    story.approve("FrontEnd_IN_1")
    assert story.only(SHOP).started_at == story.at(minutes=1)
    assert len(story.under_way) == 3


def test_rule_04_a_sudden_failure_is_one_operation_with_an_event_per_scope():
    """node-3 fails: batch and shop each see a Started Redeploy of their own VMs."""
    story = Story()
    (operation,) = story.fail("node-3").operations
    assert story.operation(operation).vms == ("batch_2", "FrontEnd_IN_0", "BackEnd_IN_0")
    assert story.only(BATCH).resources == ("batch_2",)
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")


@pytest.mark.parametrize("kind", [*FOR_ALL, OperationKind.MIGRATION, OperationKind.EVACUATION])
def test_rule_04_no_event_names_two_update_domains(kind):
    """A node holds two update domains of web; forced, each gets an event of its own."""
    story = Story(one_set(web("a", update_domain=0), web("b", update_domain=1), web("c", None, 0)))
    story.tell(story.node_command(kind, "node-0", force=True))
    assert [(event.update_domain, event.resources) for event in story.events(WEB)] == [
        (0, ("a",)),
        (1, ("b",)),
    ]
    assert story.shows(WEB)[0] == 2


@pytest.mark.parametrize("kind", ["prediction", "failure"])
def test_rule_04_nor_does_one_of_a_node_that_fails(kind):
    """Nobody forces a failure, and still each update domain has its own event."""
    story = Story(one_set(web("a", update_domain=0), web("b", update_domain=1)))
    if kind == "failure":
        story.fail("node-0")
    else:
        story.predict("node-0", risk=Risk.HIGH)
    assert [event.resources for event in story.events(WEB)] == [("a",), ("b",)]


def test_rule_04_vms_of_one_update_domain_share_an_event():
    """Both VMs of update domain 2 are in one event; the third VM is on another node."""
    story = Story(one_set(web("a", "node-0", 2), web("b", "node-0", 2), web("c", "node-1", 2)))
    story.maintain("node-0")
    assert story.only(WEB).resources == ("a", "b")
    assert story.only(WEB).update_domain == 2


@pytest.mark.parametrize("kind", [*FOR_ALL, *APART])
def test_rule_04_only_running_vms_are_named(kind):
    """BackEnd_IN_0 is stopped: shop's event names FrontEnd_IN_0 alone."""
    story = Story()
    story.stop("BackEnd_IN_0")
    story.done()
    on_node(story, kind, "node-3")
    assert story.only(SHOP).resources == ("FrontEnd_IN_0",)


@pytest.mark.parametrize("kind", [*FOR_ALL, *APART])
def test_rule_04_a_scope_whose_vms_there_do_not_run_gets_no_event(kind):
    """batch_2 is stopped, so batch sees nothing of node-3, and nobody waits for it."""
    story = Story()
    story.stop("batch_2")
    story.done()
    on_node(story, kind, "node-3")
    assert story.shows(BATCH) == (1, [])
    story.approve("FrontEnd_IN_1")
    assert {impact.vm for impact in story.under_way.values()} == {"FrontEnd_IN_0", "BackEnd_IN_0"}


@pytest.mark.parametrize("kind", FOR_ALL)
def test_rule_04_an_empty_node_makes_no_event_and_is_done_at_once(kind):
    """Nobody is on node-6 to be told or hit."""
    story = Story(one_set(web("a")))
    (operation,) = on_node(story, kind, "node-6")
    assert story.operation(operation).status == "Completed"
    assert story.shows(WEB) == (1, [])


@pytest.mark.parametrize("kind", FOR_ALL)
def test_rule_04_no_event_names_two_nodes(kind):
    """VM a is on its way from node-0 to b's node when that is announced: it is not there yet."""
    story = Story(one_set(web("a", "node-0", 0), web("b", "node-1", 0), nodes=2))
    story.redeploy("a")
    story.approve("a")
    (impact,) = story.under_way.values()
    assert (impact.source, impact.target) == ("node-0", "node-1")
    on_node(story, kind, "node-1")
    for event in story.events(WEB):
        assert len({story.vm(vm).node for vm in event.resources}) == 1, event


# ---- A VM operation ----


def test_rule_04_a_vm_operation_makes_one_event():
    """The restart of web-0 names web-0; all of web sees it."""
    story = Story()
    answer = story.restart_vm("web-0")
    assert len(answer.operations) == len(answer.events) == 1
    assert story.only(WEB).resources == ("web-0",)
    assert story.only(WEB).id == answer.events[0]


def test_rule_04_several_vms_of_one_update_domain_are_still_an_event_each():
    """A command that names both shop VMs of update domain 0 makes two operations, two events."""
    story = Story()
    answer = story.restart_vm("FrontEnd_IN_0", "BackEnd_IN_0")
    assert len(set(answer.operations)) == len(set(answer.events)) == 2
    assert [event.resources for event in story.events(SHOP)] == [
        ("FrontEnd_IN_0",),
        ("BackEnd_IN_0",),
    ]
    assert story.shows(SHOP)[0] == 2


# ---- Scopes ----


def test_rule_04_of_single_vms_in_a_zone_only_the_one_that_is_hit_sees_it():
    """Of 100 single VMs of zone 1 on one node, one is restarted; 99 read nothing."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0", capacity=100),),
        vms=tuple(VmSpec(f"vm-{n}", "node-0", zone="1") for n in range(100)),
    )
    story = Story(spec, listening=tuple(f"vm:vm-{n}" for n in range(100)))
    story.restart_vm("vm-7")
    assert [n for n in range(100) if story.events(f"vm:vm-{n}")] == [7]


def test_rule_04_of_an_availability_set_all_see_it():
    """Of 100 VMs of an availability set one is restarted; there is one document for all."""
    story = Story(one_set(*(web(f"web-{n}", f"node-{n // 16}", 0) for n in range(100))))
    story.restart_vm("web-7")
    assert {story.vm(f"web-{n}").scope for n in range(100)} == {WEB}
    assert story.only(WEB).resources == ("web-7",)


def test_rule_04_a_vm_in_a_zone_and_in_a_set_is_in_the_set():
    """A zone does not make a VM of a scale set standalone."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),),
        scale_sets=(ScaleSetSpec("batch"),),
        vms=(VmSpec("batch_0", "node-0", scale_set="batch", zone="2"),),
    )
    assert Story(spec).vm("batch_0").scope == BATCH


# ---- Update domains ----


def test_rule_04_an_update_domain_left_out_is_the_position_modulo_5():
    """Seven VMs of web get 0 1 2 3 4 0 1."""
    story = Story(one_set(*(web(f"web-{n}", f"node-{n}") for n in range(7))))
    assert [story.vm(f"web-{n}").update_domain for n in range(7)] == [0, 1, 2, 3, 4, 0, 1]


def test_rule_04_positions_count_within_the_set():
    """Each set of the sample begins at 0, wherever its VMs stand in the file."""
    story = Story()
    assert [story.vm(f"batch_{n}").update_domain for n in range(4)] == [0, 1, 2, 3]
    assert [story.vm(f"spot_{n}").update_domain for n in range(2)] == [0, 1]


def test_rule_04_an_update_domain_that_is_given_counts():
    """The second VM says 3, and the one after it is still in position 2."""
    story = Story(one_set(web("a"), web("b", "node-1", 3), web("c", "node-2")))
    assert [story.vm(vm).update_domain for vm in ("a", "b", "c")] == [0, 3, 2]


def test_rule_04_a_vm_keeps_its_update_domain():
    """The file is turned round and a VM put in front: those that were there stay as they were."""
    a, b, c = web("a"), web("b", "node-1"), web("c", "node-2")
    story = Story(one_set(a, b, c))
    story.tell(ApplyFleet(spec=one_set(web("new", "node-3"), c, b, a)))
    assert [story.vm(vm).update_domain for vm in ("a", "b", "c")] == [0, 1, 2]
    assert story.vm("new").update_domain == 0


def test_rule_04_an_update_domain_no_longer_given_is_kept():
    """It was 3 by the file; left out of the next file it is still 3."""
    story = Story(one_set(web("a"), web("b", "node-1", 3)))
    story.tell(ApplyFleet(spec=one_set(web("a"), web("b", "node-1"))))
    assert story.vm("b").update_domain == 3


def test_rule_04_the_same_file_again_changes_nothing():
    """Applying the sample twice is as good as once."""
    Story().unchanged(ApplyFleet(spec=sample()))


def test_rule_04_a_vm_that_is_redeployed_keeps_its_update_domain():
    """web-1 moves to another node and stays in update domain 1."""
    story = Story()
    story.redeploy("web-1")
    story.approve("web-1")
    story.done()
    assert story.vm("web-1").node != "node-1"
    assert story.vm("web-1").update_domain == 1


def test_rule_04_a_standalone_vm_has_no_update_domain():
    """VM db has none, and its event has none."""
    story = Story()
    story.restart_vm("db")
    assert story.vm("db").update_domain is None
    assert story.only(DB).update_domain is None


@pytest.mark.parametrize("zone", [None, "1"])
def test_rule_04_a_standalone_vm_cannot_be_given_one(zone):
    """The file says update domain 2 of a VM that is in no set."""
    story = Story()
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),), vms=(VmSpec("alone", "node-0", update_domain=2, zone=zone),)
    )
    refusal = story.refused(ApplyFleet(spec=spec))
    assert refusal.code == "invalid"
    assert "alone" in refusal.why
    assert "standalone" in refusal.why


def test_rule_04_update_domains_count_from_0():
    """-1 is refused."""
    refusal = Story().refused(ApplyFleet(spec=one_set(web("a", update_domain=-1))))
    assert refusal.code == "invalid"
    assert "-1" in refusal.why


def test_rule_04_a_standalone_vm_conflicts_with_nobody():
    """Single VMs in three fault domains: all their nodes are maintained at once, unforced."""
    spec = FleetSpec(
        nodes=tuple(NodeSpec(f"node-{n}", n) for n in range(3)),
        vms=tuple(VmSpec(f"vm-{n}", f"node-{n}") for n in range(3)),
    )
    story = Story(spec, listening=tuple(f"vm:vm-{n}" for n in range(3)))
    for n in range(3):
        story.maintain(f"node-{n}")
    story.advance(minutes=15)
    assert len(story.under_way) == 3


def test_rule_04_two_standalone_vms_on_a_node_are_two_events():
    """Neither sees nor approves the other's."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),), vms=(VmSpec("a", "node-0"), VmSpec("b", "node-0"))
    )
    story = Story(spec, listening=("vm:a", "vm:b"))
    story.maintain("node-0")
    assert [story.only(scope).resources for scope in ("vm:a", "vm:b")] == [("a",), ("b",)]
