"""A label that cannot be read: its domain may be the VM, so nothing is done for its absence."""

import asyncio

import pytest

from fairnotice.drivers.libvirt import host, labels
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    LIMITS,
    RUNNING,
    TestNodes,
    ended,
    impact_of,
    libvirt,
    order,
    states,
    surround,
)

KINDS = [kind for kind in ImpactKind if kind is not ImpactKind.MIGRATE]
DELETE = order(ImpactKind.DELETE)


@pytest.fixture
def nodes(tmp_path):
    """Two, and a VM that runs on the first."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm")
    return both


def damage(nodes, name="vm", node="n1"):
    """Write commas into its label, live as well as in its definition."""
    domain = nodes[node].connection.lookupByName(name)
    flags = 3 if domain.isActive() else 0
    text = '<vm addresses="10.0.0.4,10.0.0.5"/>'
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "fairnotice", labels.LABEL, flags)
    return domain


def told(story):
    """What comes of it, soon."""
    return asyncio.run(asyncio.wait_for(story, 20))


@pytest.mark.parametrize("looks_before", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_done_or_failed_while_a_label_cannot_be_read(nodes, kind, looks_before):
    """It waits, whoever asks what became of it too, and then it is done to the VM."""

    async def story():
        driver = nodes.driver(**LIMITS)
        for _ in range(looks_before):
            await driver.survey(1)
        domain = damage(nodes)
        with pytest.raises(Unavailable, match="label of vm on n1 cannot be read") as waiting:
            await driver.impact(order(kind), 1)
        with pytest.raises(Unavailable, match="label of vm on n1 cannot be read"):
            await driver.outcome("op/vm", 1)
        assert states(nodes) == {"n1": RUNNING}
        host.set_label(domain, Label())
        report = await driver.impact(order(kind), 1)
        await driver.close()
        return str(waiting.value), report.outcome

    said, outcome = told(story())
    assert "addresses cannot be '10.0.0.4,10.0.0.5'" in said
    assert outcome is Outcome.DONE


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_vm_that_is_there_does_not_wait_for_other_labels(nodes, node):
    """Only absence has to be certain."""
    nodes[node].run("other")
    damage(nodes, "other", node)
    assert impact_of(nodes, ImpactKind.REBOOT).outcome is Outcome.DONE
    assert impact_of(nodes, ImpactKind.DELETE, key="end/vm").outcome is Outcome.DONE
    assert states(nodes) == {}


def test_what_is_left_of_a_vm_elsewhere_is_not_taken_for_it(nodes):
    """It runs at home, where its label cannot be read."""
    nodes["n2"].connection.defineXML(nodes["n1"].connection.lookupByName("vm").XMLDesc(2))
    before = states(nodes)
    damage(nodes)
    for kind in (ImpactKind.STOP, ImpactKind.DELETE):
        with pytest.raises(Unavailable, match="label of vm on n1"):
            impact_of(nodes, kind)
    assert states(nodes) == before


def test_a_vm_of_a_failed_node_is_started_elsewhere_whatever_other_labels_say(nodes):
    """Whoever has declared the node failed has said where the VM was."""
    told(looked(nodes))
    nodes["n2"].run("other")
    damage(nodes, "other", "n2")
    nodes["n1"].away = True
    failed = {"failed_nodes": frozenset({"n1"})}
    assert impact_of(nodes, ImpactKind.REDEPLOY, **failed).outcome is Outcome.DONE
    assert states(nodes)["n2"] == RUNNING


async def looked(nodes):
    """As a control plane that has ended since."""
    driver = nodes.driver()
    await driver.survey(1)
    await driver.close()


@pytest.mark.parametrize("kind", [ImpactKind.DELETE, ImpactKind.REBOOT])
def test_a_domain_that_was_labeled_as_the_vm_just_now_is_not_overlooked(tmp_path, kind):
    """What its label said at the last look is no proof that there is no such domain."""
    nodes = TestNodes(tmp_path, "n1", "n2")
    domain = nodes["n1"].run("box", Label(name="box"))

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        host.set_label(domain, Label(name="vm"))
        report = await driver.impact(order(kind), 1)
        await driver.close()
        return report.outcome

    assert told(story()) is Outcome.DONE
    left = [one.name() for one in nodes["n1"].connection.listAllDomains(0)]
    assert ("box" in left) is (kind is not ImpactKind.DELETE)


class Died(BaseException):
    """A control plane ends here."""


@pytest.mark.parametrize("again", ["the same look", "anew"])
def test_a_delete_that_is_taken_up_is_not_done_while_a_label_cannot_be_read(nodes, again):
    """Its key is in the ledger; that nothing of the VM is found is no proof that it is gone."""

    def die(call):
        if call[1] == "shutdown":
            raise Died

    surround(nodes, die)
    with pytest.raises(Died):
        impact_of(nodes, ImpactKind.DELETE)
    surround(nodes, lambda _: None)
    domain = damage(nodes)

    async def story():
        later = nodes.driver(**LIMITS)
        if again == "anew":
            await later.survey(2)
        for _ in range(2):
            with pytest.raises(Unavailable, match="label of vm on n1"):
                await later.outcome("op/vm", 2)
        assert states(nodes) == {"n1": RUNNING}
        host.set_label(domain, Label())
        report = await ended(later, "op/vm", 2)
        await later.close()
        return report.outcome

    assert told(story()) is Outcome.DONE
    assert states(nodes) == {}


def test_a_label_that_is_damaged_while_its_vm_ends_does_not_end_the_delete(nodes):
    """It was the VM when it was read last, and so it is until its label says otherwise."""

    def spoil(call):
        if call[1] == "shutdown":
            damage(nodes)

    surround(nodes, spoil, deaf=True)

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        with pytest.raises(Unavailable, match="label of vm on n1"):
            await driver.impact(DELETE, 1)
        await driver.survey(1)
        with pytest.raises(Unavailable, match="label of vm on n1"):
            await driver.outcome(DELETE.key, 1)
        assert states(nodes) == {"n1": RUNNING}
        surround(nodes, lambda _: None)
        host.set_label(nodes["n1"].connection.lookupByName("vm"), Label())
        report = await ended(driver, DELETE.key, 1)
        await driver.close()
        return report.outcome

    assert told(story()) is Outcome.DONE
    assert states(nodes) == {}


def test_a_delete_that_has_ended_is_done_whatever_labels_say(nodes):
    """Its end is written."""
    assert impact_of(nodes, ImpactKind.DELETE).outcome is Outcome.DONE
    nodes["n1"].run("other")
    damage(nodes, "other")

    async def story():
        later = nodes.driver()
        report = await later.outcome("op/vm", 2)
        await later.close()
        return report.outcome

    assert told(story()) is Outcome.DONE


def test_a_label_that_cannot_be_read_is_said_once(nodes, caplog):
    """Also while an impact is asked for every second; and again when it says something else."""

    async def story():
        driver = nodes.driver()
        domain = damage(nodes)
        for _ in range(3):
            await driver.survey(1)
            with pytest.raises(Unavailable):
                await driver.outcome("op/vm", 1)
        host.set_label(domain, Label())
        await driver.survey(1)
        damage(nodes)
        await driver.survey(1)
        await driver.close()

    told(story())
    assert caplog.text.count("the label of vm on n1 cannot be read") == 2
