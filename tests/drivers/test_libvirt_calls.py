"""How much an impact asks of its nodes: as decision 0018 has it, whatever else runs there."""

import asyncio

import pytest

from fairnotice.drivers.libvirt import host
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, order, states, surround

# What a node that has nothing of a VM is asked at a look for it, at most.
ONE_LOOK = 8
# libvirt's library knows these itself.
NO_CALLS = ("name", "UUIDString")


def calls(folder, kind, *, count, others):
    """How many calls one impact is, on so many nodes with so many other VMs each."""
    folder.mkdir()
    nodes = TestNodes(folder, *(f"n{number + 1}" for number in range(count)))
    nodes["n1"].run("vm")
    for name, node in nodes.nodes.items():
        for number in range(others):
            node.run(f"{name}-{number}")

    async def story():
        driver = nodes.driver(reboot_limit_seconds=5)
        await driver.survey(1)
        for node in nodes.nodes.values():
            node.asked.clear()
        report = await driver.impact(order(kind), 1)
        asked = sum((node.asked for node in nodes.nodes.values()), start=type(node.asked)())
        await driver.close()
        return report.outcome, sum(asked.values()) - sum(asked[name] for name in NO_CALLS)

    outcome, number = asyncio.run(story())
    assert outcome is Outcome.DONE
    return number


@pytest.mark.parametrize(
    ("kind", "most"),
    [(ImpactKind.FREEZE, 90), (ImpactKind.REBOOT, 105), (ImpactKind.REDEPLOY, 210)],
)
def test_an_impact_is_so_many_calls_whatever_else_is_there(tmp_path, kind, most):
    """A few for each step, and not some for each domain of each node."""
    two = calls(tmp_path / "two", kind, count=2, others=0)
    four = calls(tmp_path / "four", kind, count=4, others=0)
    full = calls(tmp_path / "full", kind, count=4, others=25)
    assert two <= most
    # An event may have come meanwhile, and a domain be read once more for it.
    assert four <= two + 2 * 16 + 10
    assert full <= four + 20


@pytest.mark.parametrize("kind", [ImpactKind.DELETE, ImpactKind.STOP, ImpactKind.REBOOT])
@pytest.mark.parametrize("deaf", [True, False])
def test_nodes_that_have_nothing_of_it_are_not_asked_while_a_guest_ends(tmp_path, kind, deaf):
    """From its button to its end: neither again and again, nor before it is started anew."""
    nodes = TestNodes(tmp_path, "n1", "n2", "n3")
    nodes["n1"].run("vm")
    asked = []

    def before(change):
        if change[1] in ("shutdown", "destroy", "reset", "create"):
            asked.append(nodes["n2"].asked.total() + nodes["n3"].asked.total())

    surround(nodes, before, deaf=deaf)
    limits = {"reboot_limit_seconds": 0.5, "shutdown_limit_seconds": 0.5}

    async def story():
        driver = nodes.driver(**limits if deaf else {})
        await driver.survey(1)
        report = await driver.impact(order(kind), 1)
        await driver.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    if not deaf and kind is not ImpactKind.REBOOT:
        # It has ended by itself: nothing more is done to it.
        assert len(asked) == 1
        return
    first, *more = asked
    # The epoch is looked at before each call, there alone; of the rest a step has one look at most.
    assert more
    assert max(more) - first <= ONE_LOOK * len(more), asked


def test_a_look_is_five_calls_for_each_domain_that_runs(tmp_path):
    """And one less for one that is off: how it is is how it starts."""
    nodes = TestNodes(tmp_path, "n1", "n2")
    domains = [nodes["n1"].run(f"vm-{number}") for number in range(10)]

    async def asked(driver):
        nodes["n1"].asked.clear()
        await driver.survey(1)
        return nodes["n1"].asked.total() - sum(nodes["n1"].asked[name] for name in NO_CALLS)

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        running = await asked(driver)
        for domain in domains:
            domain.destroy()
        await driver.survey(1)
        off = await asked(driver)
        for domain in domains:
            domain.undefine()
        nothing = await asked(driver)
        await driver.close()
        return running - nothing, off - nothing

    assert asyncio.run(story()) == (5 * len(domains), 4 * len(domains))


def test_a_domain_that_is_labeled_as_another_vm_is_heard_at_the_next_look(tmp_path):
    """Until then it is held to be what it was: but nobody takes two domains for one VM for long."""
    nodes = TestNodes(tmp_path, "n1", "n2")
    nodes["n1"].run("vm")
    other = nodes["n2"].run("other")

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        host.set_label(other, Label(name="vm"))
        await driver.survey(1)
        both = await driver.impact(order(ImpactKind.REBOOT), 1)
        host.set_label(other, Label())
        await driver.survey(1)
        one = await driver.impact(order(ImpactKind.REBOOT, key="again/vm"), 1)
        await driver.close()
        return both, one

    both, one = asyncio.run(story())
    assert "both say that they are vm" in both.reason
    assert one.outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_two_domains_of_one_node_that_say_they_are_one_vm_are_left_alone(tmp_path):
    """Also where one of them has its name; and their node is not held to be lost for it."""
    nodes = TestNodes(tmp_path, "n1")
    nodes["n1"].run("vm")
    nodes["n1"].run("copy", Label(name="vm"))
    nodes["n1"].instead["isAlive"] = lambda _: False

    async def story():
        driver = nodes.driver()
        report = await driver.impact(order(ImpactKind.REBOOT), 1)
        await driver.close()
        return report

    report = asyncio.run(story())
    assert report.outcome is Outcome.FAILED
    assert "on n1 both say that they are vm" in report.reason
    assert nodes["n1"].asked["isAlive"] == 0
    assert nodes["n1"].calls == []
