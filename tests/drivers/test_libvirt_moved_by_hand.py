"""Somebody moves a VM by hand while its guest is asked to end: it has not ended for that.

`virsh migrate` leaves the definition where it was, and none where the VM goes, unless it is asked.
"""

import asyncio
import threading

import pytest

from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import LIMITS, RUNNING, libvirt, order, states, surround
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("no_patience")
OFF, UNKNOWN = libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN
PATIENT = {"reboot_limit_seconds": 20, "shutdown_limit_seconds": 20}
OFF_KINDS = (ImpactKind.STOP, ImpactKind.DEALLOCATE, ImpactKind.DELETE, ImpactKind.REDEPLOY)
# Whether it is defined where it goes, and not any more where it was.
MIGRATIONS = [
    (persistent, undefined) for persistent in (True, False) for undefined in (True, False)
]


class Moving:
    """Two nodes; whoever presses the VM's power button finds it on the other one afterwards."""

    def __init__(self, nodes, migration, *, knows=True):
        self.knows = knows
        self.nodes, (self.persistent, self.undefined) = nodes, migration
        self.moved, self.twice = threading.Event(), False
        # The test driver moves nothing, and so has no such reason.
        nodes["n1"].instead["state"] = self.state
        surround(nodes, lambda _: None, self.changed, deaf=True)

    def state(self, real, *flags):
        """As libvirtd has it on the node that it left; one that was restarted has forgotten."""
        state, reason = real.state(*flags)
        if state == OFF and self.moved.is_set():
            return [OFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED if self.knows else UNKNOWN]
        return [state, reason]

    def domain(self, node):
        """The VM's there."""
        return self.nodes[node].connection.lookupByName("vm")

    def changed(self, call):
        """Each change is looked at: it never runs on both."""
        self.twice = self.twice or list(states(self.nodes).values()).count(RUNNING) > 1
        if call[1] == "shutdown" and not self.moved.is_set():
            self.move()

    def move(self):
        """As `virsh migrate --live`, mark and all."""
        before, target = self.domain("n1"), self.nodes["n2"].connection
        xml = before.XMLDesc(0)
        before.destroy()
        if self.undefined:
            before.undefine()
        if self.persistent:
            target.defineXML(xml).create()
        else:
            target.createXML(xml)
        self.moved.set()

    def end(self):
        """The guest has heard, and ends where it is by now."""
        until(self.moved.is_set)
        # Long enough to be looked at where it is.
        threading.Event().wait(0.5)
        self.domain("n2").destroy()

    def impact(self, kind, **settings):
        """What one comes to."""

        async def story():
            driver = self.nodes.driver(**settings)
            report = await driver.impact(order(kind), 1)
            await driver.close()
            return report

        return asyncio.run(asyncio.wait_for(story(), 40))


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("migration", MIGRATIONS)
def test_a_guest_that_has_heard_is_started_where_it_has_ended(fresh, migration, knows):
    """It is not left off on the other node, nor started here while it still runs there."""
    vm = Moving(fresh(), migration, knows=knows)
    # Nothing is left of one that was defined nowhere.
    left = migration != (False, True)
    ending = threading.Thread(target=vm.end)
    ending.start()
    report = vm.impact(ImpactKind.REBOOT, **PATIENT)
    ending.join()
    assert not vm.twice
    assert (report.outcome is Outcome.DONE) == left, report
    # Where it has ended nothing is left of one that was not defined there.
    wanted = ["n2"] if vm.persistent else ["n1"] if left else []
    assert [name for name, state in states(vm.nodes).items() if state == RUNNING] == wanted


@pytest.mark.parametrize("migration", MIGRATIONS)
def test_a_guest_that_has_not_heard_is_reset_where_it_is(fresh, migration):
    """There alone: what is left of it here is not started."""
    vm = Moving(fresh(), migration)
    report = vm.impact(ImpactKind.REBOOT, **LIMITS)
    assert report.outcome is Outcome.DONE, report
    assert [name for name, _ in vm.nodes["n2"].calls].count("reset") == 1
    assert not vm.twice
    assert states(vm.nodes) == ({} if vm.undefined else {"n1": OFF}) | {"n2": RUNNING}


@pytest.mark.parametrize("migration", MIGRATIONS)
@pytest.mark.parametrize("kind", OFF_KINDS)
def test_a_vm_that_runs_on_elsewhere_is_not_said_to_be_off(fresh, kind, migration):
    """Nor is it started a second time by whoever goes back."""
    vm = Moving(fresh(), migration)
    report = vm.impact(kind, **LIMITS)
    assert (report.outcome, "could not be stopped" in report.reason) == (Outcome.FAILED, True)
    assert not vm.twice
    assert states(vm.nodes) == ({} if vm.undefined else {"n1": OFF}) | {"n2": RUNNING}


def test_a_vm_is_where_it_was_last_also_when_a_libvirtd_forgets_why_it_is_off(fresh):
    """It was moved while it was off, and has ended there since; so it had where it was before."""
    nodes = fresh()
    before = nodes["n2"].connection.defineXML(nodes["n1"].connection.lookupByName("vm").XMLDesc(2))
    before.create()
    before.destroy()
    nodes["n1"].connection.lookupByName("vm").destroy()

    async def story():
        driver = nodes.driver()
        places = [(await driver.survey(1)).found[0].node]
        nodes["n1"].instead["state"] = lambda real, *_: [real.state()[0], UNKNOWN]
        places.append((await driver.survey(1)).found[0].node)
        await driver.close()
        return places

    assert asyncio.run(story()) == ["n1", "n1"]


def test_a_vm_that_ran_twice_before_is_stopped_twice(fresh):
    """Neither is taken for the other one, moved."""
    nodes = fresh()
    xml = nodes["n1"].connection.lookupByName("vm").XMLDesc(0)
    nodes["n2"].connection.defineXML(xml).create()

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        report = await driver.impact(order(ImpactKind.DELETE), 1)
        await driver.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    assert states(nodes) == {}
