"""Another control plane leads by now, and what has ended long ago: who says so is believed."""

import asyncio
from datetime import timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt import host, records
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import Record, records_in
from fairnotice.errors import LeadLost
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, libvirt, order, states

NOW = SystemClock().wall()


@pytest.fixture
def nodes(tmp_path):
    """Two nodes, and a VM on the first."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm")
    return both


def written(nodes, name="vm", node="n1"):
    """How far each impact has come, by what is written on this domain."""
    domain = nodes[node].connection.lookupByName(name)
    return {one.key: one.phase for one in records_in(domain.XMLDesc(0))}


def taken_over_at(nodes, phase, at="n1"):
    """As soon as this phase is written, a later control plane shows itself to this node."""

    def around(_, name, call, *given):
        answer = call(*given)
        if name == "setMetadata" and f'phase="{phase}"' in (given[1] or ""):
            host._raise_epoch(nodes[at].connection, 2)
        return answer

    nodes["n1"].around = around

    async def story(kind):
        driver = nodes.driver()
        try:
            with pytest.raises(LeadLost):
                await driver.impact(order(kind), 1)
        finally:
            await driver.close()

    return lambda kind: asyncio.run(story(kind))


@pytest.mark.parametrize("kind", [ImpactKind.FREEZE, ImpactKind.REBOOT, ImpactKind.REDEPLOY])
def test_a_later_control_plane_that_may_not_have_seen_the_key_is_seen(nodes, kind):
    """It asked before the key was written, and was told that nothing was begun: nothing is."""
    taken_over_at(nodes, records.BEGUN)(kind)
    assert written(nodes) == {"op/vm": records.BEGUN}
    assert nodes["n1"].calls == []
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        (ImpactKind.FREEZE, records.FREEZING),
        (ImpactKind.REBOOT, records.ASKING),
        (ImpactKind.REDEPLOY, records.LEAVING),
    ],
)
def test_before_each_call_it_is_looked_who_leads(nodes, kind, phase):
    """However far it has come: what is done from now on is the later one's."""
    taken_over_at(nodes, phase)(kind)
    assert written(nodes) == {"op/vm": phase}
    assert nodes["n1"].calls == []
    assert states(nodes) == {"n1": RUNNING}


def test_before_anything_is_made_on_its_target_it_is_looked_who_leads_there(nodes):
    """A later control plane may have been at the target alone: a disk there is the one it made."""
    host.set_label(nodes["n1"].connection.lookupByName("vm"), Label(ephemeral_disks=("vdb",)))
    nodes["n2"].add_disk("vm-temp", capacity=4096)
    taken_over_at(nodes, records.MOVING, at="n2")(ImpactKind.REDEPLOY)
    assert written(nodes) == {"op/vm": records.MOVING}
    assert states(nodes) == {"n1": libvirt.VIR_DOMAIN_SHUTOFF}
    assert nodes["n2"].pool.storageVolLookupByName("vm-temp").info()[1] == 4096


def leave(domain, key, days):
    """An impact that ended so many days ago."""
    at = NOW - timedelta(days=days)
    record = Record(key, "vm", ImpactKind.FREEZE, 1, at, at, at, phase=records.ENDED)
    record = record._replace(outcome=Outcome.DONE)
    flags = 3 if domain.isActive() else 2
    uri = records.impact_uri(key)
    domain.setMetadata(2, records.written(record), records.PREFIX, uri, flags)


def impact(nodes, kind, **settings):
    """One impact, and what is said of it afterwards."""

    async def story():
        driver = nodes.driver(reboot_limit_seconds=5, **settings)
        await driver.survey(1)
        await driver.impact(order(kind), 1)
        report = await driver.outcome("op/vm", 1)
        await driver.close()
        return report.outcome

    return asyncio.run(story())


def test_what_has_ended_is_forgotten_after_kept_days(nodes):
    """Else a domain would remember all that ever befell it."""
    domain = nodes["n1"].connection.lookupByName("vm")
    leave(domain, "old/vm", 8)
    leave(domain, "young/vm", 6)
    assert impact(nodes, ImpactKind.REBOOT, kept_days=7) is Outcome.DONE
    assert written(nodes) == {"young/vm": records.ENDED, "op/vm": records.ENDED}


@pytest.mark.parametrize("kind", [ImpactKind.REBOOT, ImpactKind.DELETE])
def test_an_impact_does_not_forget_itself(nodes, kind):
    """However few the days are: else it would be begun again."""
    assert impact(nodes, kind, kept_days=1e-9) is Outcome.DONE


def test_keys_of_vms_that_are_gone_are_forgotten_as_well(nodes):
    """They are in the ledger."""

    async def met():
        driver = nodes.driver()
        await driver.survey(1)
        await driver.close()

    asyncio.run(met())
    ledger = nodes["n1"].connection.lookupByName(host.LEDGER)
    leave(ledger, "old/other", 8)
    leave(ledger, "young/other", 6)
    assert impact(nodes, ImpactKind.DELETE, kept_days=7) is Outcome.DONE
    left = {"young/other": records.ENDED, "op/vm": records.ENDED}
    assert written(nodes, host.LEDGER) == left
