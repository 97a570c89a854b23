"""A VM of libvirt elsewhere: room, disks, and definitions that outlive their node."""

import asyncio
import threading

import pytest

from fairnotice.drivers.libvirt import labels, looking
from fairnotice.drivers.libvirt.host import DEFINITIONS, LEDGER
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    DOMAIN,
    RUNNING,
    TEMPORARY_BYTES,
    TestNodes,
    ended,
    kept,
    libvirt,
    order,
    states,
    survey,
)

REDEPLOY = order(ImpactKind.REDEPLOY)
OF_A_FAILED_NODE = REDEPLOY._replace(failed_nodes=frozenset({"n1"}))


@pytest.fixture
def nodes(tmp_path):
    """Three nodes, and a VM with an ephemeral disk on the first."""
    three = TestNodes(tmp_path, "n1", "n2", "n3")
    three["n1"].run("vm", Label(ephemeral_disks=("vdb",)))
    return three


def impact(nodes, wanted):
    """What becomes of an order, by a driver of its own."""

    async def story():
        driver = nodes.driver()
        try:
            return await driver.impact(wanted, 1)
        finally:
            await driver.close()

    return asyncio.run(story())


# ---- A redeploy, and what it needs there ----


def test_a_redeploy_has_an_empty_ephemeral_disk_where_it_goes(nodes):
    """As large, in the same format, instead of one that was left there; the rest goes along."""
    nodes["n2"].add_disk("vm-temp", capacity=1024)
    assert impact(nodes, REDEPLOY).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}
    xml = nodes["n2"].connection.lookupByName("vm").XMLDesc(0)
    assert "/disks/vm-temp" in xml
    assert labels.label_in(xml) == Label(ephemeral_disks=("vdb",))
    assert "op%2Fvm" in xml
    volume = nodes["n2"].pool.storageVolLookupByName("vm-temp")
    assert volume.info()[1] == TEMPORARY_BYTES
    assert "qcow2" in volume.XMLDesc(0)
    # Of the other disk nobody makes an empty one.
    assert [one.name() for one in nodes["n2"].pool.listAllVolumes()] == ["vm-temp"]


def no_pool(node):
    """Nowhere to make a disk."""
    node.pool.destroy()


def no_memory(node):
    """2 MiB of it can be freed."""
    node.free_kib = 61 * 1024


def another_of_that_name(node):
    """A domain that is no VM of the fleet."""
    node.connection.defineXML(DOMAIN.format(name="vm", more=""))


def another_with_that_disk(node):
    """A VM of this node whose disk has the same name; the two were never on one node."""
    node.add_disk("vm-temp", capacity=7)
    node.connection.defineXML(DOMAIN.format(name="b", more="").replace("b-temp", "vm-temp"))


def another_with_that_volume(node):
    """It names its disk by the pool."""
    node.add_disk("vm-temp", capacity=7)
    disk = (
        """<disk type="volume"><source pool="disks" volume="vm-temp"/><target dev="vdc"/></disk>"""
    )
    node.connection.defineXML(DOMAIN.format(name="b", more=disk))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_pool, "no active storage pool with the directory of /disks/vm-temp"),
        (no_memory, "n2 has no room: 63 MiB are free, 64 needed"),
        (another_of_that_name, "n2 has another domain called vm"),
        (lambda node: setattr(node, "away", True), "n2 cannot take it"),
        (another_with_that_disk, "disk vdb would be /disks/vm-temp, which b has"),
        (another_with_that_volume, "disk vdb would be /disks/vm-temp, which b has"),
    ],
)
def test_a_redeploy_to_a_node_that_cannot_take_it_is_refused_before_it_is_touched(
    nodes, spoil, said
):
    """The VM runs on where it is."""
    spoil(nodes["n2"])
    report = impact(nodes, REDEPLOY)
    assert report.outcome is Outcome.FAILED
    assert said in report.reason
    nodes["n2"].away = False
    assert states(nodes)["n1"] == RUNNING
    assert nodes.done("op/vm") == 0


def test_a_node_with_just_enough_memory_takes_it(nodes):
    """What is cached can be freed."""
    nodes["n2"].free_kib = 62 * 1024
    assert impact(nodes, REDEPLOY).outcome is Outcome.DONE


def test_a_disk_that_another_got_meanwhile_is_not_made_anew(nodes):
    """It is looked again just before: the VM stays where it was."""

    def around(_, name, call, *given):
        if name == "shutdown":
            another_with_that_disk(nodes["n2"])
        return call(*given)

    nodes["n1"].around = around
    report = impact(nodes, REDEPLOY)
    assert (report.outcome, "which b has" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": RUNNING}
    assert nodes["n2"].pool.storageVolLookupByName("vm-temp").info()[1] == 7


@pytest.mark.parametrize("target", ["nowhere", None])
def test_a_redeploy_with_nowhere_to_go_is_refused_before_anything_is_touched(nodes, target):
    """The VM runs on where it is."""
    report = impact(nodes, REDEPLOY._replace(target=target))
    assert report.outcome is Outcome.FAILED
    assert "to go to" in report.reason
    assert states(nodes) == {"n1": RUNNING}
    assert nodes.done("op/vm") == 0


# ---- Its node is gone ----


def test_a_vm_of_a_node_that_failed_is_started_elsewhere_by_a_later_life(nodes):
    """An operator has said that it is surely down; two others know how the VM was defined."""
    survey(nodes)
    nodes["n1"].away = True
    assert sorted(kept(nodes)) == ["n2", "n3"]
    assert impact(nodes, OF_A_FAILED_NODE).outcome is Outcome.DONE
    xml = nodes["n2"].connection.lookupByName("vm").XMLDesc(0)
    assert states(nodes)["n2"] == RUNNING
    assert labels.label_in(xml) == Label(ephemeral_disks=("vdb",))
    assert nodes["n2"].pool.storageVolLookupByName("vm-temp").info()[1] == TEMPORARY_BYTES


def test_what_a_node_that_came_back_still_has_is_replaced_when_the_vm_goes_there(nodes):
    """It is as it was before the node failed: neither that definition nor its disk counts."""
    survey(nodes)
    nodes["n1"].away = True
    assert impact(nodes, OF_A_FAILED_NODE).outcome is Outcome.DONE
    nodes["n1"].away = False
    nodes["n1"].connection.lookupByName("vm").destroy()
    edited = nodes["n2"].connection.lookupByName("vm").XMLDesc(2).replace(">65536<", ">32768<")
    nodes["n2"].connection.defineXML(edited)
    back = REDEPLOY._replace(key="back/vm", node="n2", target="n1")
    assert impact(nodes, back).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}
    assert ">32768<" in nodes["n1"].connection.lookupByName("vm").XMLDesc(0)


def test_one_that_runs_twice_is_said_to(nodes, caplog):
    """A node came back and started it by itself: somebody has to decide which it is."""
    there = nodes["n1"].connection.lookupByName("vm").XMLDesc(2)
    nodes["n3"].connection.defineXML(there).create()
    survey(nodes)
    assert "vm runs on n1 and on n3" in caplog.text


def test_a_vm_of_a_node_that_is_only_away_is_started_nowhere_else(nodes):
    """It may run there: whoever asks is told that it cannot be said, and to ask again."""

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        nodes["n1"].away = True
        with pytest.raises(Unavailable):
            await driver.impact(REDEPLOY, 1)
        with pytest.raises(Unavailable):
            await driver.outcome(REDEPLOY.key, 1)
        with pytest.raises(Unavailable):
            await driver.impact(REDEPLOY._replace(key="p/vm", kind=ImpactKind.DELETE), 1)
        nodes["n1"].away = False
        await driver.close()

    asyncio.run(story())
    assert states(nodes) == {"n1": RUNNING}


def test_a_node_lost_in_the_middle_of_a_redeploy_does_not_make_two_of_a_vm(nodes):
    """It was not seen to be off: it is not started elsewhere until the node is back."""

    def lose(name, _):
        if name == "shutdown":
            nodes["n1"].away = True

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        nodes["n1"].before = lose
        with pytest.raises(Unavailable):
            await driver.impact(REDEPLOY, 1)
        there = [one.name() for one in nodes["n2"].connection.listAllDomains(0)]
        assert sorted(there) == [DEFINITIONS, LEDGER]
        nodes["n1"].before, nodes["n1"].away = lambda *_: None, False
        report = await ended(driver, REDEPLOY.key, 1)
        await driver.close()
        return report

    assert asyncio.run(asyncio.wait_for(story(), 20)).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}


def test_a_control_plane_that_dies_while_it_starts_one_elsewhere_is_carried_on(nodes):
    """The node that takes it knows of the impact before anything is made there."""

    def die(*_):
        raise RuntimeError("the control plane died")

    async def story():
        first = nodes.driver()
        await first.survey(1)
        nodes["n1"].away = True
        nodes["n2"].before = die
        with pytest.raises(RuntimeError):
            await first.impact(OF_A_FAILED_NODE, 1)
        nodes["n2"].before = lambda *_: None
        later = nodes.driver()
        report = await ended(later, OF_A_FAILED_NODE.key, 2)
        await later.close()
        await first.close()
        return report

    assert asyncio.run(asyncio.wait_for(story(), 20)).outcome is Outcome.DONE
    assert nodes["n2"].connection.lookupByName("vm").state()[0] == RUNNING


def test_of_two_nodes_that_failed_the_vms_are_started_elsewhere(nodes):
    """The other one cannot be asked either, and nothing runs there; one only away may have it."""

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        nodes["n1"].away = nodes["n2"].away = True
        wanted = OF_A_FAILED_NODE._replace(target="n3")
        with pytest.raises(Unavailable):
            await driver.impact(wanted, 1)
        # It is declared failed a moment after the first: whoever asks says so.
        with pytest.raises(Unavailable):
            await driver.outcome(wanted.key, 1, wanted.failed_nodes)
        both = frozenset({"n1", "n2"})
        assert (await driver.outcome(wanted.key, 1, both)).outcome is Outcome.NOT_BEGUN
        report = await driver.impact(wanted._replace(failed_nodes=both), 1)
        await driver.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    assert nodes["n3"].connection.lookupByName("vm").state()[0] == RUNNING


def test_a_node_that_failed_and_hangs_is_not_waited_for(nodes, monkeypatch):
    """Its line lives; its VMs are started elsewhere all the same."""
    monkeypatch.setattr(looking, "SLOW_SECONDS", 0.05)
    hung = threading.Event()

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        nodes["n1"].slow = hung.wait
        try:
            started = asyncio.ensure_future(driver.impact(OF_A_FAILED_NODE, 1))
            done, _ = await asyncio.wait({started}, timeout=15)
            assert done
            return started.result()
        finally:
            hung.set()
            await driver.close()

    assert asyncio.run(story()).outcome is Outcome.DONE
    assert nodes["n2"].connection.lookupByName("vm").state()[0] == RUNNING


def test_a_deallocated_vm_is_started_while_some_other_node_is_away(nodes):
    """It has given up its place where it is defined: it runs nowhere, whoever cannot be asked."""

    async def story():
        driver = nodes.driver()
        stopped = await driver.impact(order(ImpactKind.DEALLOCATE), 1)
        nodes["n3"].away = True
        start = order(ImpactKind.START, key="start/vm")._replace(node=None)
        started = await driver.impact(start, 1)
        await driver.close()
        return stopped.outcome, started.outcome

    assert asyncio.run(story()) == (Outcome.DONE, Outcome.DONE)
    assert states(nodes) == {"n2": RUNNING}


def test_what_is_left_of_a_vm_does_not_say_that_it_is_nowhere_else(nodes):
    """It is off where it was once; it may run on the node that cannot be asked."""
    nodes["n1"].connection.lookupByName("vm").destroy()
    nodes["n3"].away = True
    with pytest.raises(Unavailable):
        impact(nodes, order(ImpactKind.START)._replace(node=None))
    with pytest.raises(Unavailable):
        impact(nodes, order(ImpactKind.START)._replace(node="n3"))
    assert states(nodes)["n1"] == libvirt.VIR_DOMAIN_SHUTOFF


def test_one_whose_definition_nobody_has_is_not_started(nodes):
    """The reason says so, and nothing is left of the attempt."""
    nodes["n1"].away = True
    report = impact(nodes, OF_A_FAILED_NODE)
    assert report.outcome is Outcome.FAILED
    assert report.reason == "there is no domain of vm, and nobody keeps its definition"
    nodes["n1"].away = False
    assert states(nodes) == {"n1": RUNNING}
