"""A domain that libvirt restarts when its guest shuts down: an impact boots it once even so.

libvirt's test driver does as QEMU's: such a domain stays active, with all that was put on it.
"""

import asyncio

import pytest

from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    RUNNING,
    died_at_any_change,
    impact_of,
    libvirt,
    order,
    states,
    surround,
)

pytestmark = pytest.mark.usefixtures("no_patience")
OFF = libvirt.VIR_DOMAIN_SHUTOFF
ON_POWEROFF = libvirt.VIR_DOMAIN_LIFECYCLE_POWEROFF
ACTIONS = {
    "restart": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_RESTART,
    "rename-restart": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_RESTART_RENAME,
    "preserve": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_PRESERVE,
}
# Where the VM is then, and how often its guest has booted.
AFTERWARDS = {
    ImpactKind.REBOOT: ({"n1": RUNNING}, 1),
    ImpactKind.REDEPLOY: ({"n2": RUNNING}, 1),
    ImpactKind.STOP: ({"n1": OFF}, 0),
    ImpactKind.DEALLOCATE: ({"n1": OFF}, 0),
    ImpactKind.DELETE: ({}, 0),
}
NO_END = {"reboot_limit_seconds": 600, "shutdown_limit_seconds": 600}


class Watched:
    """Two nodes with a VM whose owner has chosen what follows a shutdown; and how often it boots.

    In the end there has to be what the owner has chosen, and nothing that says otherwise.
    """

    def __init__(self, nodes, action="restart", *, deaf=False):
        self.nodes, self.boots, self.calls = nodes, 0, []
        self.deaf = deaf
        self.action = action
        self._was_reset = False
        both = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
        self.domain().setLifecycleAction(ON_POWEROFF, ACTIONS[action], both)
        self.surround()

    def surround(self, before=lambda _: None, after=lambda _: None):
        """Have these told of each change, as `surround` does; and count."""

        def counted(call):
            self.calls.append(call[1])
            if call[1] == "create":
                self.boots += 1
            if call[1] == "shutdown" and not self.deaf and self.domain().isActive():
                self.boots += 1
            # One that was reset boots when it is let go.
            self.boots += call[1] == "resume" and self._was_reset
            self._was_reset = call[1] == "reset" or (self._was_reset and call[1] != "resume")
            after(call)

        surround(self.nodes, before, counted, deaf=self.deaf)

    def domain(self, node="n1"):
        """The VM's there."""
        return self.nodes[node].connection.lookupByName("vm")

    def must_be(self, kind):
        """As it should be after one that was done."""
        where, boots = AFTERWARDS[kind]
        assert (states(self.nodes), self.boots) == (where, boots), self.calls
        for node in where:
            self.must_be_as_chosen(node)

    def must_be_as_chosen(self, node="n1"):
        """What its owner has chosen, now and when it starts again."""
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            xml = self.domain(node).XMLDesc(flags)
            assert f"<on_poweroff>{self.action}</on_poweroff>" in xml
            assert "urn:fairnotice:libvirt:poweroff" not in xml


async def impact(nodes, kind, key="op/vm", **settings):
    """What one comes to."""
    driver = nodes.driver(**settings)
    await driver.survey(1)
    report = await driver.impact(order(kind, key), 1)
    await driver.close()
    return report


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_guest_that_shuts_down_is_off_and_boots_no_more_than_it_should(fresh, kind, action):
    """It hears, so neither is a limit waited for nor is it reset or destroyed."""
    vm = Watched(fresh(), action)
    report = asyncio.run(asyncio.wait_for(impact(vm.nodes, kind, **NO_END), 20))
    assert report.outcome is Outcome.DONE, report
    vm.must_be(kind)
    assert "shutdown" in vm.calls
    assert not {"reset", "destroy"} & set(vm.calls)


@pytest.mark.parametrize("kind", AFTERWARDS)
def test_one_whose_restart_libvirt_will_not_hold_back_is_not_asked_to_shut_down(fresh, kind):
    """It would be booted by libvirt: it is reset, or destroyed, without a limit in vain."""
    vm = Watched(fresh())

    def refuse(call):
        if call[1] == "setLifecycleAction":
            raise libvirt.libvirtError("the action cannot be changed")

    vm.surround(refuse)
    report = asyncio.run(asyncio.wait_for(impact(vm.nodes, kind, **NO_END), 20))
    assert report.outcome is Outcome.DONE, report
    vm.surround()
    vm.must_be(kind)
    assert "shutdown" not in vm.calls


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_control_plane_that_dies_at_any_change_leaves_no_second_boot_and_the_owners_choice(
    fresh, kind, deaf
):
    """Before it and after it; whoever comes next ends what was begun."""
    for vm in died_at_any_change(lambda: Watched(fresh(deaf=deaf), deaf=deaf), kind):
        vm.must_be(kind)


def test_a_guest_that_is_reset_runs_only_when_the_owners_choice_is_given_back(fresh):
    """From its first moment on, whatever becomes of the control plane."""
    vm = Watched(fresh(deaf=True), deaf=True)
    resumed = []

    def see(call):
        if call[1] == "resume":
            vm.must_be_as_chosen()
            resumed.append(call)

    vm.surround(see)
    assert impact_of(vm.nodes, ImpactKind.REBOOT).outcome is Outcome.DONE
    assert len(resumed) == 1
    vm.must_be(ImpactKind.REBOOT)


def test_a_stop_that_fails_gives_the_owners_choice_back(fresh):
    """The guest does not hear, and cannot be destroyed: it runs on, as it was."""
    vm = Watched(fresh(), deaf=True)

    def refuse(call):
        if call[1] == "destroy":
            raise libvirt.libvirtError("cannot acquire state change lock")

    vm.surround(refuse)
    assert impact_of(vm.nodes, ImpactKind.STOP).outcome is Outcome.FAILED
    assert states(vm.nodes) == {"n1": RUNNING}
    vm.must_be_as_chosen()


def test_what_an_impact_could_not_give_back_the_next_one_does(fresh):
    """Whichever it is: the domain itself remembers for as long as it runs."""
    vm = Watched(fresh(), deaf=True)
    held = []

    def refuse(call):
        held.append(call[1] == "setLifecycleAction")
        if call[1] == "destroy" or (held[-1] and sum(held) > 1):
            raise libvirt.libvirtError("cannot acquire state change lock")

    vm.surround(refuse)
    assert impact_of(vm.nodes, ImpactKind.STOP).outcome is Outcome.FAILED
    assert "<on_poweroff>destroy<" in vm.domain().XMLDesc(0)
    vm.surround()
    report = asyncio.run(impact(vm.nodes, ImpactKind.FREEZE, "later/vm"))
    assert report.outcome is Outcome.DONE
    vm.must_be_as_chosen()
