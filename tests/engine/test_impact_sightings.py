"""Rules 12, 14 and 20: VMs that a driver finds in another state, or not at all."""

import pytest

from fairnotice.engine import commands as ask
from fairnotice.words import OperationKind, Power
from tests.engine.story import BATCH, DB, WEB, Story, sample


def found(vm, node=None, power=Power.RUNNING):
    """A driver has seen it so."""
    return ask.ReportVm(vm=vm, node=node, power=power)


def test_rule_12_a_vm_that_is_gone_leaves_what_was_announced():
    """Somebody has removed it on its node: its own event is canceled, and it is in no document."""
    story = Story()
    story.restart_vm("db")
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]
    story.tell(ask.ReportVm(vm="db"))
    assert "db" not in story.fleet.vms
    story.unchanged(ask.ReportVm(vm="db"))


def test_rule_20_a_vm_found_stopped_is_stopped():
    """It leaves the maintenance of its node, and is running again when it is found so."""
    story = Story()
    story.maintain("node-0")
    story.tell(found("batch_0", "node-0", Power.STOPPED))
    assert story.vm("batch_0").power is Power.STOPPED
    assert story.shows(BATCH)[1] == []
    story.tell(found("batch_1", None, Power.DEALLOCATED))
    assert story.vm("batch_1").node is None
    story.tell(found("batch_1", "node-1"))
    assert (story.vm("batch_1").node, story.vm("batch_1").power) == ("node-1", Power.RUNNING)


def test_rule_12_a_vm_found_elsewhere_has_moved():
    """As if it had been migrated; what is as it was found changes nothing."""
    story = Story()
    story.tell(found("db", "node-5"))
    assert story.vm("db").node == "node-5"
    story.unchanged(found("db", "node-5"))


def test_rule_10_under_impact_the_impact_says_what_a_vm_is():
    """A driver looks while a reboot is under way: what it sees of that VM counts for nothing."""
    story = Story()
    story.restart_vm("db")
    story.approve("db", story.only(DB).id)
    assert story.under_way
    story.unchanged(found("db", "node-1", Power.STOPPED))
    story.unchanged(ask.ReportVm(vm="db"))


@pytest.mark.parametrize("node", ["node-0", "node-9", "node-2"])
def test_rule_14_a_vm_found_where_none_may_be_put_waits(node):
    """Under maintenance, unknown or full: it is said, and looked at again later."""
    spec = sample()
    nodes = tuple(one._replace(capacity=2) if one.name == "node-2" else one for one in spec.nodes)
    story = Story(spec._replace(nodes=nodes))
    story.on_node(OperationKind.HOST_UPDATE, "node-0")
    assert story.refused(found("db", node)).rule == 14
    assert story.vm("db").node == "node-1"
    assert story.shows(WEB)[1] == [("Freeze", "Scheduled")]
