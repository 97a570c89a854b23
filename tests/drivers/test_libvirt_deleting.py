"""A delete is of the domain that it was begun with: a new one of its name is another VM."""

import asyncio
from itertools import count

import pytest

from fairnotice.drivers.libvirt import records
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import LIMITS, RUNNING, Died, ended, order, states, surround

pytestmark = pytest.mark.usefixtures("no_patience")
DELETE = order(ImpactKind.DELETE)


def replace(nodes):
    """An operator has a new VM of that name, whatever has become of the one before."""
    for domain in nodes["n1"].connection.listAllDomains(0):
        if domain.name() == "vm":
            domain.destroy() if domain.isActive() else None
            domain.undefine()
    nodes["n1"].pool.storageVolLookupByName("vm-temp").delete(0)
    return nodes["n1"].run("vm").UUIDString()


def must_run(nodes, uuid):
    """The new one, as it was begun."""
    assert states(nodes) == {"n1": RUNNING}
    assert nodes["n1"].connection.lookupByName("vm").UUIDString() == uuid


async def carried_on(nodes):
    """What the next control plane says of it."""
    driver = nodes.driver(**LIMITS)
    report = await ended(driver, DELETE.key, 2)
    await driver.close()
    return report.outcome


@pytest.mark.parametrize("deaf", [False, True])
def test_a_new_vm_of_the_name_is_not_deleted_by_whoever_carries_the_delete_on(fresh, deaf):
    """Wherever the control plane has died: before a change and after it."""

    async def story(nodes, at, where):
        calls = []

        def die(call):
            calls.append(call)
            if len(calls) > at:
                raise Died

        surround(nodes, **({"before": lambda _: None} | {where: die}), deaf=deaf)
        first = nodes.driver(**LIMITS)
        (died,) = await asyncio.gather(first.impact(DELETE, 1), return_exceptions=True)
        surround(nodes, lambda _: None, deaf=deaf)
        await first.close()
        uuid = replace(nodes)
        outcome = await carried_on(nodes)
        must_run(nodes, uuid)
        return isinstance(died, Died), outcome

    said = set()
    for where in ("before", "after"):
        for at in count():
            died, outcome = asyncio.run(story(fresh(deaf=deaf), at, where))
            said.add(outcome)
            if not died:
                break
    # What only the old domain had of it is gone with that.
    assert said == {Outcome.DONE, Outcome.NOT_BEGUN}


def test_a_new_vm_is_left_alone_while_the_old_one_is_still_asked_to_end(fresh):
    """Who deletes has not died: somebody was faster, and that is what he finds."""
    nodes = fresh()
    new = []

    def make(call):
        if call[1] == "shutdown" and not new:
            new.append(replace(nodes))

    async def story():
        driver = nodes.driver(**LIMITS)
        surround(nodes, lambda _: None, make, deaf=True)
        report = await driver.impact(DELETE, 1)
        await driver.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    must_run(nodes, *new)


@pytest.mark.parametrize("active", [True, False])
def test_a_name_that_is_another_domains_by_now_is_not_acted_on(fresh, active):
    """Between a look and what is done upon it, however short that is: ended, or undefined."""
    nodes = fresh(deaf=True)
    new = []

    async def story():
        driver = nodes.driver(**LIMITS)
        change = driver._hosts["n1"].on

        async def on(name, do):
            domain = nodes["n1"].connection.lookupByName(name)
            if not new and bool(domain.isActive()) is active:
                new.append(replace(nodes))
            return await change(name, do)

        driver._hosts["n1"].on = on
        report = await driver.impact(DELETE, 1)
        await driver.close()
        return report

    report = asyncio.run(story())
    assert (report.outcome, report.reason) == (Outcome.FAILED, "vm is another domain by now")
    must_run(nodes, *new)


def test_a_delete_that_was_begun_by_a_version_before_is_carried_on(fresh):
    """That wrote no UUID: the domain of this name is the one."""
    nodes = fresh()

    def die(call):
        if call[1] == "shutdown":
            raise Died

    async def begin():
        driver = nodes.driver(**LIMITS)
        surround(nodes, die)
        await asyncio.gather(driver.impact(DELETE, 1), return_exceptions=True)
        await driver.close()

    asyncio.run(begin())
    surround(nodes, lambda _: None)
    for domain in nodes["n1"].connection.listAllDomains(0):
        for record in records.records_in(domain.XMLDesc(0)):
            assert record.uuid == nodes["n1"].connection.lookupByName("vm").UUIDString()
            text = records.written(record).replace(f' uuid="{record.uuid}"', "")
            assert records.read(text) == record._replace(uuid="")
            uri = records.impact_uri(record.key)
            flags = 3 if domain.isActive() else 2
            domain.setMetadata(2, text, records.PREFIX, uri, flags)
    assert asyncio.run(carried_on(nodes)) is Outcome.DONE
    assert states(nodes) == {}
