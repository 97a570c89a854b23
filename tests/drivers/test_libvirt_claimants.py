"""Two domains that claim to be one VM: what is known of it stays known, and it is said once."""

import asyncio
import logging

import pytest

from fairnotice.drivers.libvirt import host
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, impact_of, order, states

CLONE = Label(name="vm")
SAID = "clone on {} and vm on n1 both say that they are vm: label one of them anew"


@pytest.fixture
def nodes(tmp_path):
    """Two, and a VM that runs on the first beside another one."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm")
    both["n1"].run("other")
    return both


def surveys(nodes, *between, epoch=1, failed=frozenset()):
    """What a driver sees at first, and again after each of these."""

    async def story():
        driver = nodes.driver()
        seen = [await driver.survey(epoch, failed)]
        for happen in between:
            happen()
            seen.append(await driver.survey(epoch, failed))
        await driver.close()
        return seen

    return asyncio.run(asyncio.wait_for(story(), 20))


def names(survey):
    """Of what it has found."""
    return [one.vm for one in survey.found]


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize("runs", ["vm", "clone", "both"])
def test_of_a_vm_that_two_domains_claim_to_be_nothing_is_said(nodes, node, runs):
    """Whichever is off and whichever is listed first; all others are seen as ever."""
    clone = nodes[node].run("clone", CLONE)
    if runs == "vm":
        clone.destroy()
    if runs == "clone":
        nodes["n1"].connection.lookupByName("vm").destroy()
    (survey,) = surveys(nodes)
    assert names(survey) == ["other"]
    assert survey.unsure == {"vm"}
    # Whether others are gone is as certain as it was.
    assert survey.whole


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_it_is_said_once_who_claims_to_be_a_vm_and_when_nobody_else_does_any_more(
    nodes, node, caplog
):
    """Then it is seen as it is."""
    clone = nodes[node].run("clone", CLONE)
    with caplog.at_level(logging.INFO):
        *_, after = surveys(nodes, lambda: None, lambda: host.set_label(clone, Label()))
    assert caplog.text.count(SAID.format(node)) == 1
    assert caplog.text.count("only one domain says that it is vm") == 1
    assert names(after) == ["clone", "other", "vm"]
    assert after.unsure == frozenset()


def test_a_third_that_claims_to_be_a_vm_is_said_as_well(nodes, caplog):
    """And of a VM that loses all of them nothing more: it is gone."""
    third = []

    def all_go():
        for name in ("vm", "clone", "third"):
            domain = nodes["n1"].connection.lookupByName(name)
            domain.destroy()
            domain.undefine()

    nodes["n1"].run("clone", CLONE)
    *_, gone = surveys(nodes, lambda: third.append(nodes["n1"].run("third", CLONE)), all_go)
    assert "clone on n1 and third on n1 and vm on n1" in caplog.text
    assert (names(gone), gone.unsure, gone.whole) == (["other"], frozenset(), True)


@pytest.mark.parametrize("failed", [frozenset(), frozenset({"n1"})])
def test_a_clone_is_not_the_vm_while_the_node_of_the_vm_is_away(nodes, failed):
    """Nobody has said meanwhile which one is; also who declared the node failed has not."""
    nodes["n2"].run("clone", CLONE).destroy()

    def leave():
        nodes["n1"].away = True

    _, alone = surveys(nodes, leave, failed=failed)
    assert (alone.found, alone.unsure) == ((), {"vm"})


def test_a_clone_that_is_off_is_not_the_vm_for_a_control_plane_that_has_not_seen_both(nodes):
    """Other nodes keep how the VM is defined: it has another UUID."""
    surveys(nodes)
    nodes["n2"].run("clone", CLONE).destroy()
    nodes["n1"].away = True
    (alone,) = surveys(nodes, epoch=2)
    assert alone.found == ()


def test_what_is_known_of_a_vm_that_two_claim_to_be_is_kept_on_other_nodes(nodes):
    """Not how the clone is defined: when their node fails, it is the VM that starts elsewhere."""
    surveys(nodes)
    nodes["n1"].run("clone", CLONE)
    surveys(nodes, lambda: None, lambda: None, epoch=2)
    nodes["n1"].away = True
    failed = {"failed_nodes": frozenset({"n1"})}
    report = impact_of(nodes, ImpactKind.REDEPLOY, epoch=3, **failed)
    assert report.outcome is Outcome.DONE
    assert states(nodes)["n2"] == RUNNING


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_whoever_asks_for_all_vms_is_told_that_two_claim_to_be_one(nodes, node):
    """A fleet of one of the two would be a guess."""
    nodes[node].run("clone", CLONE)

    async def story():
        driver = nodes.driver()
        with pytest.raises(Trouble) as labels:
            await driver.labels()
        with pytest.raises(Unavailable) as found:
            await driver.discover(1)
        await driver.close()
        return str(labels.value), str(found.value)

    assert asyncio.run(story()) == (SAID.format(node),) * 2


def test_what_became_of_an_impact_cannot_be_told_while_two_claim_to_be_its_vm(nodes):
    """It is asked for again, until somebody has said which one is; its end is written there."""

    async def story():
        first = nodes.driver()
        await first.impact(order(ImpactKind.REBOOT), 1)
        await first.close()
        clone = nodes["n2"].run("clone", CLONE)
        later = nodes.driver()
        with pytest.raises(Unavailable) as waiting:
            await later.outcome("op/vm", 2)
        host.set_label(clone, None)
        await later.survey(2)
        report = await later.outcome("op/vm", 2)
        await later.close()
        return str(waiting.value), report.outcome

    assert asyncio.run(story()) == (SAID.format("n2"), Outcome.DONE)


def test_the_vm_and_what_is_left_of_it_elsewhere_are_one(nodes):
    """They have one UUID: the VM is where it runs."""
    xml = nodes["n1"].connection.lookupByName("vm").XMLDesc(2)
    nodes["n2"].connection.defineXML(xml)
    (survey,) = surveys(nodes)
    assert [(one.vm, one.node, one.power) for one in survey.found if one.vm == "vm"] == [
        ("vm", "n1", Power.RUNNING)
    ]
    assert survey.unsure == frozenset()
