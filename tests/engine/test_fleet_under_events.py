"""Rule 21: no fleet change pulls a VM out from under a live event."""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE
from fairnotice.engine.commands import ApplyFleet, Cordon, JoinEndpoint, ReportReachable
from fairnotice.engine.refusal import Code, Refusal
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import Network, OperationKind, Priority
from tests.engine.story import BATCH, DB, SHOP, WEB, Story, sample


def with_vm(vm_name: str, **changed: object) -> FleetSpec:
    """The sample fleet with one VM described otherwise."""
    spec = sample()
    vms = (vm._replace(**changed) if vm.name == vm_name else vm for vm in spec.vms)
    return spec._replace(vms=tuple(vms))


def without_vm(*names: str) -> FleetSpec:
    """The sample fleet without these VMs."""
    spec = sample()
    return spec._replace(vms=tuple(vm for vm in spec.vms if vm.name not in names))


def without_node(name: str) -> FleetSpec:
    """The sample fleet without a node, and without the VMs on it."""
    spec = sample()
    nodes = tuple(node for node in spec.nodes if node.name != name)
    return spec._replace(nodes=nodes, vms=tuple(vm for vm in spec.vms if vm.node != name))


def refused(story: Story, spec: FleetSpec) -> Refusal:
    """The specification is refused, and nothing has changed."""
    return story.refused(ApplyFleet(spec=spec))


CHANGES = {
    "scope": with_vm("web-0", availability_set=None, cloud_service="shop"),
    "out of every set": with_vm("web-0", availability_set=None),
    "node": with_vm("web-0", node="node-5"),
    "name": with_vm("web-0", name="web-9"),
    "addresses": with_vm("web-0", addresses=("10.0.0.1",)),
    "update domain": with_vm("web-0", update_domain=4),
    "removal of the VM": without_vm("web-0"),
    "removal of its node": without_node("node-0"),
    "removal of its node, the VM moved": FleetSpec(
        without_node("node-0").nodes,
        tuple(vm._replace(node="node-5") if vm.node == "node-0" else vm for vm in sample().vms),
        *sample()[2:],
    ),
    "fault domain of its node": sample()._replace(
        nodes=(NodeSpec("node-0", 7), *sample().nodes[1:])
    ),
    "removal of its set": sample()._replace(
        availability_sets=(), vms=without_vm("web-0", "web-1", "web-2").vms
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rule_21_a_change_under_a_scheduled_event_is_refused_with_the_event_named(name):
    """A restart of web-0 is announced: nothing that names the VM or its place may change."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    refusal = refused(story, CHANGES[name])
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 21, event)
    assert event in refusal.why
    assert "cancel" in refusal.remedy


@pytest.mark.parametrize("name", CHANGES)
def test_rule_21_a_change_under_a_started_event_is_refused_with_the_event_named(name):
    """The same while the VM is rebooted."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.approve("web-1")
    refusal = refused(story, CHANGES[name])
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 21, event)


@pytest.mark.parametrize("name", CHANGES)
def test_rule_21_the_same_change_is_fine_once_the_event_is_gone(name):
    """Done, or canceled, nothing stands in the way."""
    story = Story()
    story.restart_vm("web-0")
    story.approve("web-1")
    story.done()
    story.cancel(story.restart_vm("web-0").operations[0])
    story.tell(ApplyFleet(spec=CHANGES[name]))


def test_rule_21_what_is_not_under_the_event_can_change():
    """Tags, zone, network, priority and groups of web-0; everything of web-1, its neighbour."""
    story = Story()
    story.restart_vm("web-0")
    spec = with_vm(
        "web-0",
        tags=(("a", "b"),),
        zone="2",
        network=Network.CLASSIC,
        priority=Priority.SPOT,
        resource_group="other",
    )
    story.tell(ApplyFleet(spec=spec))
    assert story.vm("web-0").zone == "2"
    story.tell(ApplyFleet(spec=without_vm("web-1")))
    assert "web-1" not in story.fleet.vms
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])


def test_rule_21_the_event_named_is_the_one_that_names_the_vm():
    """Maintenance of node-0 makes two events; removing batch_0 is refused with batch's."""
    story = Story()
    story.maintain("node-0")
    refusal = refused(story, without_vm("batch_0"))
    assert refusal.event == story.only(BATCH).id
    refusal = refused(story, without_vm("web-0"))
    assert refusal.event == story.only(WEB).id


def test_rule_21_an_event_is_named_although_an_operation_without_one_came_first():
    """The first restart came too soon to be announced to a scope that listens only now."""
    story = Story(listening=())
    story.restart_vm("web-0", not_before=story.at(minutes=5))
    story.listen(WEB)
    event = story.restart_vm("web-0").events[0]
    assert refused(story, without_vm("web-0")).event == event


def test_rule_21_what_happens_without_an_event_is_named_by_its_operation():
    """Nobody listens: the VM is under impact, and the refusal says by what."""
    story = Story(listening=())
    operation = story.restart_vm("web-0").operations[0]
    refusal = refused(story, without_vm("web-0"))
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 21, None)
    assert operation in refusal.why


def test_rule_21_all_or_nothing():
    """One VM is under an event, the other is not: neither is removed."""
    story = Story()
    story.restart_vm("web-2")
    refused(story, without_vm("db", "web-2"))
    assert "db" in story.fleet.vms


def test_rule_21_a_node_is_not_removed_under_a_vm_on_its_way_to_it():
    """A live migration goes to a node that the file leaves out."""
    story = Story()
    story.on_node(OperationKind.MIGRATION, "node-5")
    story.advance(minutes=15)
    (impact,) = story.under_way.values()
    target = impact.target
    others = tuple(node for node in sample().nodes if node.name != target)
    vms = tuple(vm for vm in sample().vms if vm.node != target)
    refusal = refused(story, sample()._replace(nodes=others, vms=vms))
    assert (refusal.rule, refusal.event) == (21, story.operation(impact.operation).events[0])


def test_rule_21_a_node_is_not_removed_under_an_operation_of_its_own():
    """Maintenance of an empty node is planned for later: the node stays until it is over."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1"))))
    story.maintain("n-1", not_before=story.at(hours=1))
    refusal = refused(story, FleetSpec((NodeSpec("n-0"),)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 21)
    assert "n-1" in refusal.why
    story.advance(hours=1)
    story.tell(ApplyFleet(spec=FleetSpec((NodeSpec("n-0"),))))
    assert "n-1" not in story.fleet.nodes


def test_rule_21_a_node_is_not_removed_under_a_vm_that_the_file_keeps():
    """A VM that names no node stays where it is, so its node stays too."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1")), (VmSpec("a", "n-1"),)))
    refusal = refused(story, FleetSpec((NodeSpec("n-0"),), (VmSpec("a"),)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 21)
    assert "a is on it" in refusal.why


def test_rule_21_a_set_is_not_removed_before_its_last_event_is_gone():
    """The VM is deleted and its Terminate settles: the set waits for it."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    event = story.delete("batch_0", "batch_1", "batch_2", "batch_3").events[0]
    story.approve("batch_0")
    story.done()
    spec = without_vm("batch_0", "batch_1", "batch_2", "batch_3")
    spec = spec._replace(scale_sets=spec.scale_sets[1:])
    refusal = refused(story, spec)
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 21, event)
    story.advance(minutes=5)
    story.tell(ApplyFleet(spec=spec))
    assert BATCH not in story.fleet.scopes


def test_rule_21_the_scope_of_a_deleted_vm_waits_for_its_event():
    """The event of db is still settling when db is gone: its scope goes with the event."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    story.restart_vm("db")
    story.approve("db")
    story.done()
    story.delete("db")
    story.done()
    assert "db" not in story.fleet.vms
    assert story.shows(DB)[1] == [("Reboot", "Started")]
    story.advance(minutes=5)
    assert DB not in story.fleet.scopes


def test_rule_14_no_vm_is_declared_where_an_operation_is_announced():
    """A new VM on node-3 could not be told in time of the maintenance there."""
    story = Story()
    story.maintain("node-3")
    spec = sample()
    refusal = refused(story, spec._replace(vms=(*spec.vms, VmSpec("new", "node-3"))))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 14)
    assert refusal.event in {story.only(BATCH).id, story.only(SHOP).id}
    assert refused(story, with_vm("db", node="node-3")).rule == 14


@pytest.mark.parametrize("state", ["cordoned", "unreachable", "failed"])
def test_rule_14_no_vm_is_declared_on_a_node_that_is_out_of_service(state):
    """Neither a new VM nor one that moves is put on a cordoned, unreachable or failed node."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1")), (VmSpec("a", "n-0"),)))
    if state == "cordoned":
        story.tell(Cordon(node="n-1"))
    elif state == "unreachable":
        story.tell(ReportReachable(node="n-1", reachable=False))
    else:
        story.fail("n-1")
        story.done()
    nodes = (NodeSpec("n-0"), NodeSpec("n-1"))
    new = FleetSpec(nodes, (VmSpec("a", "n-0"), VmSpec("b", "n-1")))
    assert refused(story, new).rule == 14
    assert refused(story, FleetSpec(nodes, (VmSpec("a", "n-1"),))).rule == 14


def test_rule_21_a_vm_that_is_placed_sees_the_nodes_of_its_own_file():
    """A file that adds a node and a VM without one: the VM is put on the new node."""
    story = Story(FleetSpec((NodeSpec("n-0"),), (VmSpec("w-0", "n-0", "web"),), (SetSpec("web"),)))
    nodes = (NodeSpec("n-0"), NodeSpec("n-1"))
    vms = (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", None, "web"))
    story.tell(ApplyFleet(spec=FleetSpec(nodes, vms, (SetSpec("web"),))))
    assert story.vm("w-1").node == "n-1"


def test_rule_21_a_node_that_is_removed_takes_its_endpoint_along():
    """Nobody waits for the endpoint of a node that is gone, nor of one that comes back."""
    nodes = (NodeSpec("n-0"), NodeSpec("n-1"))
    story = Story(FleetSpec(nodes))
    story.tell(JoinEndpoint(node="n-1"))
    story.tell(ApplyFleet(spec=FleetSpec(nodes[:1])))
    assert story.fleet.endpoints == {}
    story.tell(ApplyFleet(spec=FleetSpec(nodes)))
    assert story.fleet.endpoints == {}
