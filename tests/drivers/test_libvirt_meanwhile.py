"""What others do while an impact is under way, and what of a domain it may not lose."""

import asyncio

import pytest

from fairnotice.drivers.libvirt import host
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.errors import LeadLost
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    RUNNING,
    Died,
    ended,
    impact_of,
    libvirt,
    order,
    states,
    surround,
    survey,
)

pytestmark = pytest.mark.usefixtures("no_patience")
OFF = libvirt.VIR_DOMAIN_SHUTOFF
KINDS = [
    ImpactKind.FREEZE,
    ImpactKind.REBOOT,
    ImpactKind.REDEPLOY,
    ImpactKind.STOP,
    ImpactKind.DEALLOCATE,
    ImpactKind.DELETE,
]


def test_a_vm_that_its_operator_has_paused_is_not_frozen_and_not_resumed(fresh):
    """He did that for a reason."""
    nodes = fresh()
    nodes["n1"].connection.lookupByName("vm").suspend()
    report = impact_of(nodes, ImpactKind.FREEZE)
    assert (report.outcome, "not by us" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": libvirt.VIR_DOMAIN_PAUSED}


def test_a_vm_that_is_destroyed_while_it_is_frozen_was_not_frozen(fresh):
    """It does not run afterwards."""
    nodes = fresh()

    def destroy(call):
        if call[1] == "resume":
            nodes["n1"].connection.lookupByName("vm").destroy()

    surround(nodes, destroy)
    report = impact_of(nodes, ImpactKind.FREEZE)
    assert (report.outcome, "does not run" in report.reason) == (Outcome.FAILED, True)


def suspends(nodes, do):
    """What becomes of the VM, given what would pause it, when it is asked to be paused."""
    domain = nodes["n1"].connection.lookupByName("vm")

    def around(_, name, call, *given):
        return do(domain, call) if name == "suspend" else call(*given)

    nodes["n1"].around = around


@pytest.mark.parametrize("paused", [False, True])
def test_a_vm_that_runs_before_its_time_was_not_frozen(fresh, paused):
    """Whatever libvirt has answered, and whoever has resumed it: its pause was announced."""
    nodes = fresh()

    def resumed(domain, call):
        if paused:
            call()
            domain.resume()

    suspends(nodes, resumed)
    report = impact_of(nodes, ImpactKind.FREEZE)
    assert (report.outcome, "runs before its time" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": RUNNING}


def test_a_vm_that_a_later_control_plane_has_let_go_of_was_frozen(fresh):
    """Whoever has paused it says nothing any more: the later one does."""
    nodes = fresh()

    def taken_over(domain, call):
        call()
        host._raise_epoch(nodes["n1"].connection, 2)
        domain.resume()

    suspends(nodes, taken_over)
    with pytest.raises(LeadLost):
        impact_of(nodes, ImpactKind.FREEZE)

    async def story():
        later = nodes.driver()
        report = await ended(later, "op/vm", 2)
        await later.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_a_vm_that_was_found_paused_and_runs_was_let_go_of_by_whoever_paused_it(fresh):
    """As a control plane does that ends, and is slow to: the next one has no word against it."""
    nodes = fresh()
    domain = nodes["n1"].connection.lookupByName("vm")
    # Longer than what is done to it meanwhile takes on a busy machine.
    freeze = order(ImpactKind.FREEZE)._replace(duration_seconds=5)

    def die(call):
        if call[1] == "setMetadata" and domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            raise Died

    async def story():
        first, later = nodes.driver(), nodes.driver()
        surround(nodes, lambda _: None, die)
        await asyncio.gather(first.impact(freeze, 1), return_exceptions=True)
        surround(nodes, lambda _: None)
        report = await later.outcome("op/vm", 2)
        await asyncio.sleep(0.3)
        domain.resume()
        last = await ended(later, "op/vm", 2)
        await first.close()
        await later.close()
        return report.outcome, last.outcome

    assert asyncio.run(story()) == (Outcome.UNDER_WAY, Outcome.DONE)


def test_a_vm_that_is_started_on_its_source_meanwhile_does_not_run_twice(fresh):
    """By hand, or by its node: it stays there."""
    nodes = fresh()

    def start(call):
        if call == ("n2", "create"):
            nodes["n1"].connection.lookupByName("vm").create()
            raise libvirt.libvirtError("the network is not there")

    surround(nodes, start)
    report = impact_of(nodes, ImpactKind.REDEPLOY)
    assert report.outcome is Outcome.FAILED
    assert states(nodes) == {"n1": RUNNING}


def test_a_vm_that_cannot_be_started_again_is_off_and_that_is_said(fresh):
    """A reboot has no way back; whoever mends what is in the way starts it."""
    nodes = fresh()

    def refuse(call):
        if call[1] == "create":
            raise libvirt.libvirtError("cannot allocate memory")

    surround(nodes, refuse)
    report = impact_of(nodes, ImpactKind.REBOOT)
    assert (report.outcome, "cannot allocate memory" in report.reason) == (Outcome.FAILED, True)
    surround(nodes, lambda _: None)
    survey(nodes, 2)
    assert states(nodes) == {"n1": OFF}
    again = {"key": "again/vm", "target": "n1"}
    assert impact_of(nodes, ImpactKind.START, epoch=2, **again).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize("kind", [ImpactKind.REBOOT, ImpactKind.START])
def test_a_vm_that_ends_as_soon_as_it_is_started_does_not_run(fresh, kind):
    """Libvirt has refused nothing: it is looked whether it runs, too."""
    nodes = fresh()
    if kind is ImpactKind.START:
        nodes["n1"].connection.lookupByName("vm").destroy()

    def end(call):
        if call[1] == "create":
            nodes["n1"].connection.lookupByName("vm").destroy()

    surround(nodes, lambda _: None, end)
    report = impact_of(nodes, kind, target="n1")
    assert (report.outcome, "does not run on n1" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": OFF}


def test_a_vm_that_is_still_there_was_not_deleted(fresh):
    """Libvirt has refused nothing here either."""
    nodes = fresh()
    for name in ("undefine", "undefineFlags"):
        nodes["n1"].instead[name] = lambda *_: 0
    report = impact_of(nodes, ImpactKind.DELETE)
    assert (report.outcome, report.reason) == (Outcome.FAILED, "vm is still on n1")
    assert states(nodes) == {"n1": OFF}


def test_what_an_earlier_move_has_left_is_not_what_runs(fresh):
    """An old definition on the target goes: the VM is as it is now."""
    nodes = fresh()
    domain = nodes["n1"].connection.lookupByName("vm")
    old = (
        domain.XMLDesc(0).replace("67108864", "65536").replace("<name>", "<title>old</title><name>")
    )
    nodes["n2"].connection.defineXML(old)
    assert impact_of(nodes, ImpactKind.REDEPLOY).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}
    assert "<title>old" not in nodes["n2"].connection.lookupByName("vm").XMLDesc(0)


def test_two_domains_that_say_they_are_one_vm_are_both_left_alone(fresh):
    """One is a copy of the other, label and all; its UUID is its own."""
    nodes = fresh()
    nodes["n2"].run("copy", Label(name="vm"))
    for kind in KINDS:
        report = impact_of(nodes, kind)
        assert (report.outcome, "both say that they are vm" in report.reason) == (
            Outcome.FAILED,
            True,
        )
    assert states(nodes) == {"n1": RUNNING}
    assert nodes["n2"].connection.lookupByName("copy").state()[0] == RUNNING


@pytest.mark.parametrize("kind", [ImpactKind.REDEPLOY, ImpactKind.STOP, ImpactKind.DEALLOCATE])
def test_a_transient_domain_is_not_switched_off(fresh, kind):
    """Nothing of it would be left."""
    nodes = fresh()
    nodes["n1"].connection.lookupByName("vm").undefine()
    report = impact_of(nodes, kind)
    assert (report.outcome, "transient" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": RUNNING}


def test_what_cannot_be_undefined_with_all_it_has_is_not_undefined_without(fresh):
    """Only a libvirt that has no such flags is asked without them."""
    nodes = fresh()

    def refuse(call):
        if call[1] == "undefineFlags":
            raise libvirt.libvirtError("the firmware's variables cannot be deleted")

    surround(nodes, refuse)
    report = impact_of(nodes, ImpactKind.DELETE)
    assert (report.outcome, "variables" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": OFF}


class Refusal(libvirt.libvirtError):
    """As libvirt's own, with its code."""

    def __init__(self, code, said):
        super().__init__(said)
        self.code = code

    def get_error_code(self):
        """Which one it is."""
        return self.code


TPM = libvirt.VIR_DOMAIN_UNDEFINE_TPM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
OF_THE_SAVED = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
DELETED = OF_THE_SAVED | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_TPM
KEPT = OF_THE_SAVED | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM


@pytest.mark.parametrize("unknown", [0, TPM])
@pytest.mark.parametrize(
    ("kind", "flags", "left"),
    [(ImpactKind.REDEPLOY, KEPT, {"n2": RUNNING}), (ImpactKind.DELETE, DELETED, {})],
)
def test_a_libvirt_that_knows_nothing_of_tpms_is_asked_for_all_else(
    fresh, kind, flags, left, unknown
):
    """Those before 8.9; a domain with firmware, snapshots or a saved state goes only with them."""
    nodes = fresh()
    asked = []

    def undefine_flags(domain, given):
        if given & unknown:
            raise Refusal(libvirt.VIR_ERR_INVALID_ARG, "unsupported flags (0x40)")
        asked.append(given)
        domain.undefine()

    def undefine(_):
        raise Refusal(libvirt.VIR_ERR_OPERATION_INVALID, "cannot undefine domain with nvram")

    for node in nodes.nodes.values():
        node.instead |= {"undefineFlags": undefine_flags, "undefine": undefine}
    report = impact_of(nodes, kind)
    assert report.outcome is Outcome.DONE, report
    assert asked == [flags & ~unknown]
    assert states(nodes) == left


def test_autostart_goes_along_and_comes_back(fresh):
    """While a VM moves, no node starts it by itself."""
    nodes = fresh()
    nodes["n1"].connection.lookupByName("vm").setAutostart(1)
    held = []

    def look(call):
        if call == ("n2", "create"):
            held.append(nodes["n1"].connection.lookupByName("vm").autostart())

    surround(nodes, look)
    assert impact_of(nodes, ImpactKind.REDEPLOY).outcome is Outcome.DONE
    assert held == [0]
    assert nodes["n2"].connection.lookupByName("vm").autostart() == 1

    def refuse(call):
        if call == ("n1", "create"):
            raise libvirt.libvirtError("the disk is not there")

    surround(nodes, refuse)
    back = {"key": "back/vm", "node": "n2", "target": "n1"}
    assert impact_of(nodes, ImpactKind.REDEPLOY, epoch=2, **back).outcome is Outcome.FAILED
    assert states(nodes) == {"n2": RUNNING}
    assert nodes["n2"].connection.lookupByName("vm").autostart() == 1


@pytest.mark.parametrize(
    ("kind", "target", "refused"),
    [
        (ImpactKind.REDEPLOY, "n2", "destroy"),
        (ImpactKind.REDEPLOY, "n2", "create"),
        (ImpactKind.START, "n1", "create"),
        (ImpactKind.START, "n2", "create"),
    ],
)
def test_autostart_comes_back_however_it_ends(fresh, kind, target, refused):
    """What was held for a while is not lost with a failure."""
    nodes = fresh()
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.setAutostart(1)
    if kind is ImpactKind.START:
        domain.destroy()
    before = states(nodes)

    def refuse(call):
        if call == ("n1" if refused == "destroy" else target, refused):
            raise libvirt.libvirtError("the disk is not there")

    surround(nodes, refuse, deaf=True)
    assert impact_of(nodes, kind, target=target).outcome is Outcome.FAILED
    assert states(nodes) == before
    assert domain.autostart() == 1


def test_autostart_that_an_impact_held_comes_back_with_the_next_one(fresh):
    """The first has died, and the law has given it up."""
    nodes = fresh()
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.setAutostart(1)

    def die(call):
        if call[1] == "shutdown":
            raise Died

    surround(nodes, die)
    with pytest.raises(Died):
        impact_of(nodes, ImpactKind.REDEPLOY)
    assert domain.autostart() == 0
    surround(nodes, lambda _: None)
    assert impact_of(nodes, ImpactKind.REBOOT, epoch=2, key="later/vm").outcome is Outcome.DONE
    assert domain.autostart() == 1


def test_a_label_that_cannot_be_read_is_no_vm_that_is_gone(fresh):
    """Nobody is reported gone while one may be it."""
    nodes = fresh()
    domain = nodes["n1"].run("other")
    uri = "urn:fairnotice:libvirt:vm:1"
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, "<vm rack='7'/>", "fairnotice", uri, 0)

    async def story():
        driver = nodes.driver()
        survey = await driver.survey(1)
        await driver.close()
        return survey

    survey = asyncio.run(story())
    assert [found.vm for found in survey.found] == ["vm"]
    assert not survey.whole


def test_a_damaged_record_is_passed_over(fresh, caplog):
    """All others are looked at even so."""
    nodes = fresh()
    domain = nodes["n1"].connection.lookupByName("vm")
    uri = "urn:fairnotice:libvirt:impact:x"
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, "<impact/>", "fairnotice", uri, 0)
    assert impact_of(nodes, ImpactKind.FREEZE).outcome is Outcome.DONE
    assert "is passed over" in caplog.text
