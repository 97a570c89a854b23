"""A domain that libvirt ends instead of resetting it: a reboot leaves it running all the same.

libvirt's test driver resets it whatever its owner has chosen; here it ends, as QEMU's does.
"""

import pytest

from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    RUNNING,
    died_at_any_change,
    impact_of,
    libvirt,
    states,
    surround,
)

pytestmark = pytest.mark.usefixtures("no_patience")
REBOOT = ImpactKind.REBOOT
ON_REBOOT = libvirt.VIR_DOMAIN_LIFECYCLE_REBOOT
ACTIONS = {
    "destroy": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_DESTROY,
    "preserve": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_PRESERVE,
}


class Ending:
    """Two nodes with a VM whose owner has chosen that a reset ends it; and what is done to it."""

    def __init__(self, nodes, action="destroy", *, deaf=True):
        self.nodes, self.deaf, self.action, self.calls = nodes, deaf, action, []
        both = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
        self.domain().setLifecycleAction(ON_REBOOT, ACTIONS[action], both)
        self.surround()

    def surround(self, before=lambda _: None, after=lambda _: None):
        """Have these told of each change, as `surround` does."""

        def end(call):
            self.calls.append(call[1])
            if call[1] == "reset" and not self.restarts():
                self.domain().destroy()
            after(call)

        surround(self.nodes, before, end, deaf=self.deaf)

    def domain(self):
        """The VM's."""
        return self.nodes["n1"].connection.lookupByName("vm")

    def restarts(self):
        """Whether it is only reset when it is reset."""
        return "<on_reboot>restart<" in self.domain().XMLDesc(0)

    def must_have_booted_once(self):
        """And runs as its owner has chosen."""
        assert (states(self.nodes), self.calls.count("create")) == ({"n1": RUNNING}, 1), self.calls
        assert f"<on_reboot>{self.action}<" in self.domain().XMLDesc(0)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_deaf_guest_that_a_reset_would_end_is_switched_off_and_on(fresh, action):
    """That is known beforehand, so it is not tried."""
    vm = Ending(fresh(deaf=True), action)
    report = impact_of(vm.nodes, REBOOT)
    assert report.outcome is Outcome.DONE, report
    vm.must_have_booted_once()
    assert "reset" not in vm.calls


@pytest.mark.parametrize("deaf", [False, True])
def test_a_control_plane_that_dies_at_any_change_leaves_it_running(fresh, deaf):
    """Before it and after it; it boots once, whoever comes next."""
    for vm in died_at_any_change(lambda: Ending(fresh(deaf=deaf), deaf=deaf), REBOOT):
        vm.must_have_booted_once()


def test_a_transient_one_is_not_rebooted(fresh):
    """Nothing of it would be left: it is refused while it runs, and says what helps."""
    vm = Ending(fresh(deaf=True))
    vm.domain().undefine()
    report = impact_of(vm.nodes, REBOOT)
    assert (report.outcome, "virsh define" in report.reason) == (Outcome.FAILED, True)
    assert states(vm.nodes) == {"n1": RUNNING}
    assert not {"shutdown", "suspend", "reset", "destroy"} & set(vm.calls)


def test_a_transient_one_that_a_reset_does_not_end_is_reset(fresh):
    """As any other that does not hear."""
    nodes = fresh(deaf=True)
    nodes["n1"].connection.lookupByName("vm").undefine()
    assert impact_of(nodes, REBOOT).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}
    assert ("reset", "op/vm") in nodes["n1"].calls


def test_one_that_somebody_has_started_anew_meanwhile_is_not_switched_off(fresh):
    """It has been rebooted, and is not once more."""
    vm = Ending(fresh(deaf=True))

    def start_anew(call):
        if call[1] == "shutdown":
            vm.domain().destroy()
            vm.domain().create()

    vm.surround(start_anew)
    assert impact_of(vm.nodes, REBOOT).outcome is Outcome.DONE
    assert states(vm.nodes) == {"n1": RUNNING}
    assert not {"destroy", "reset"} & set(vm.calls)


def test_one_that_cannot_be_switched_off_runs_on(fresh):
    """It was not rebooted, and why is said."""
    vm = Ending(fresh(deaf=True))

    def refuse(call):
        if call[1] == "destroy":
            raise libvirt.libvirtError("cannot acquire state change lock")

    vm.surround(refuse)
    report = impact_of(vm.nodes, REBOOT)
    assert (report.outcome, "could not be stopped" in report.reason) == (Outcome.FAILED, True)
    assert states(vm.nodes) == {"n1": RUNNING}


def test_a_transient_one_that_ends_in_a_reset_is_gone(fresh):
    """Nobody looks for a definition of it, and that is said."""
    nodes = fresh(deaf=True)
    nodes["n1"].connection.lookupByName("vm").undefine()

    def end(call):
        if call[1] == "reset":
            nodes["n1"].connection.lookupByName("vm").destroy()

    surround(nodes, lambda _: None, end, deaf=True)
    report = impact_of(nodes, REBOOT)
    assert (report.outcome, states(nodes)) == (Outcome.FAILED, {}), report
    assert report.reason == "vm is gone"


@pytest.mark.parametrize(
    ("when", "what"), [("before", "reset"), ("after", "reset"), ("after", "resume")]
)
def test_one_that_ends_in_a_reset_unforeseen_is_started(fresh, when, what):
    """As by whoever finds it off after a crash."""
    nodes, ends = fresh(deaf=True), []

    def end(call):
        if call[1] == what and not ends:
            ends.append(nodes["n1"].connection.lookupByName("vm").destroy())

    surround(nodes, **({"before": lambda _: None} | {when: end}), deaf=True)
    report = impact_of(nodes, REBOOT)
    assert report.outcome is Outcome.DONE, report
    assert (states(nodes), len(ends)) == ({"n1": RUNNING}, 1)
