"""A VM that two nodes have a domain of: the one that was put somewhere last is the VM."""

import asyncio
from datetime import timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt.host import mark_moved
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import Moved, moved_in
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, libvirt, order, states

pytestmark = pytest.mark.usefixtures("no_patience")
OFF = libvirt.VIR_DOMAIN_SHUTOFF
NEW_KIB, OLD_KIB = 32768, 65536
OF_A_FAILED_NODE = order(ImpactKind.REDEPLOY)._replace(failed_nodes=frozenset({"n1"}))
STOP = order(ImpactKind.STOP, "stop/vm")._replace(node="n2", target=None)
START = order(ImpactKind.START, "start/vm")._replace(node="n2")


class Behind(SystemClock):
    """That of a control plane whose clock is an hour late."""

    def wall(self):
        """The time an hour ago."""
        return super().wall() - timedelta(hours=1)


def impact(nodes, wanted, clock=None):
    """What becomes of an order, by a driver of its own that has looked around."""

    async def story():
        driver = nodes.driver(clock)
        await driver.survey(1)
        report = await driver.impact(wanted, 1)
        await driver.close()
        return report

    return asyncio.run(asyncio.wait_for(story(), 20))


def found(nodes):
    """Where the VM is said to be, and in what power."""

    async def story():
        driver = nodes.driver()
        survey = await driver.survey(1)
        await driver.close()
        return [(one.node, one.power) for one in survey.found]

    return asyncio.run(story())


def domain(nodes, name):
    """The VM's there."""
    return nodes[name].connection.lookupByName("vm")


def move_from_a_failed_node(nodes, clock=None):
    """From n1 to n2, where it is edited; n1 comes back with how it was before."""
    assert found(nodes) == [("n1", Power.RUNNING)]
    nodes["n1"].away = True
    assert impact(nodes, OF_A_FAILED_NODE, clock).outcome is Outcome.DONE
    edited = domain(nodes, "n2").XMLDesc(2).replace(f">{OLD_KIB}<", f">{NEW_KIB}<")
    nodes["n2"].connection.defineXML(edited)
    nodes["n1"].away = False
    domain(nodes, "n1").destroy()


@pytest.fixture
def nodes(tmp_path):
    """Three, and a VM on the first."""
    three = TestNodes(tmp_path, "n1", "n2", "n3")
    three["n1"].run("vm", Label(ephemeral_disks=("vdb",)))
    return three


@pytest.mark.parametrize("clock", [SystemClock(), Behind()])
@pytest.mark.parametrize("target", ["n1", "n2", "n3"])
def test_a_vm_that_is_off_is_where_it_was_put_last_and_starts_as_it_is_there(nodes, target, clock):
    """Not as a node that failed and came back remembers it; and only one is left."""
    move_from_a_failed_node(nodes, clock)
    assert impact(nodes, STOP).outcome is Outcome.DONE
    assert found(nodes) == [("n2", Power.STOPPED)]
    assert impact(nodes, START._replace(target=target)).outcome is Outcome.DONE
    assert states(nodes) == {target: RUNNING}
    assert domain(nodes, target).maxMemory() == NEW_KIB


def test_what_was_put_there_last_is_later_whatever_the_clock_says(nodes):
    """Forth by a clock that is right, and back by one that is late."""
    move_from_a_failed_node(nodes)
    first = moved_in(domain(nodes, "n2").XMLDesc(0)).at
    back = order(ImpactKind.REDEPLOY, "back/vm")._replace(node="n2", target="n3")
    assert impact(nodes, back, Behind()).outcome is Outcome.DONE
    assert moved_in(domain(nodes, "n3").XMLDesc(0)).at > first


def test_remains_on_the_target_are_not_the_vm_of_a_node_that_failed(nodes):
    """What others keep of its definition is later."""
    move_from_a_failed_node(nodes)
    assert found(nodes) == [("n2", Power.RUNNING)]
    nodes["n2"].away = True
    back = OF_A_FAILED_NODE._replace(key="back/vm", node="n2", target="n1")
    back = back._replace(failed_nodes=frozenset({"n2"}))
    assert impact(nodes, back).outcome is Outcome.DONE
    assert states(nodes)["n1"] == RUNNING
    assert domain(nodes, "n1").maxMemory() == NEW_KIB


@pytest.mark.parametrize(("target", "left"), [("n1", "n2"), ("n2", "n2"), ("n3", "n2")])
def test_a_start_that_is_refused_leaves_the_vm_as_it_is(nodes, target, left):
    """Whatever becomes of remains: the one that counts is still there."""
    move_from_a_failed_node(nodes)
    assert impact(nodes, STOP).outcome is Outcome.DONE

    def refuse(_, name, call, *given):
        if name == "create":
            raise libvirt.libvirtError("the network is not there")
        return call(*given)

    nodes[target].around = refuse
    report = impact(nodes, START._replace(target=target, limit_seconds=5))
    assert (report.outcome, "network is not there" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes)[left] == OFF
    assert domain(nodes, left).XMLDesc(0).count(f">{NEW_KIB}<") == 2
    assert found(nodes) == [(left, Power.STOPPED)]


def test_remains_are_not_the_vm_while_its_node_is_away(nodes):
    """It is not said to have moved back and to be off; once every node was asked, it is."""
    move_from_a_failed_node(nodes)
    assert found(nodes) == [("n2", Power.RUNNING)]
    nodes["n2"].away = True
    assert found(nodes) == []
    nodes["n2"].away = False
    domain(nodes, "n2").destroy()
    domain(nodes, "n2").undefine()
    assert found(nodes) == [("n1", Power.STOPPED)]


@pytest.mark.parametrize(("source", "target"), [("n1", "n2"), ("n2", "n1")])
def test_what_waits_for_memory_where_a_migration_goes_is_not_the_vm_yet(tmp_path, source, target):
    """It is active as well, and even put there later; whoever is asked to freeze it freezes it."""
    nodes = TestNodes(tmp_path, "n1", "n2")
    xml = nodes[source].run("vm").XMLDesc(2)
    later = Moved(SystemClock().wall(), "migrate/vm")
    arriving = nodes[target].connection.defineXML(xml)
    mark_moved(arriving, later)
    arriving.create()
    arriving.suspend()
    assert found(nodes) == [(source, Power.RUNNING)]
    assert impact(nodes, order(ImpactKind.FREEZE)._replace(node=source)).outcome is Outcome.DONE
    assert nodes[source].calls == [("suspend", "op/vm")]
    assert nodes[target].calls == []
    # It has arrived: the source is left paused, until it is taken away.
    domain(nodes, source).suspend()
    arriving.resume()
    assert found(nodes) == [(target, Power.RUNNING)]
