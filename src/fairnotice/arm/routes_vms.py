"""The addresses of virtual machines."""

from collections.abc import Callable, Iterable
from functools import partial

from fairnotice.arm import filtering, finding, paths, properties, shapes
from fairnotice.arm.doing import (
    NO_DISKS,
    act_on_one,
    delete_one,
    evict_one,
    maintain_one,
    refuse,
)
from fairnotice.arm.paging import page
from fairnotice.arm.route import ArmRoute, Call, Done, Handler
from fairnotice.control.limits import Reach
from fairnotice.engine.keeping import kept_name
from fairnotice.model import Vm
from fairnotice.words import ScopeKind, TokenRole

VMS = f"{paths.GROUP}/{paths.VMS}"
VM = f"{VMS}/{{vm}}"
_KIND = properties.KINDS[ScopeKind.STANDALONE]
# What Azure calls it, and what the law does.
ACTIONS = {
    "restart": "restart",
    "redeploy": "redeploy",
    "deallocate": "deallocate",
    "start": "start",
    "powerOff": "stop",
}
# What there is on Azure and not here: said so, instead of doing something else.
REFUSED = ("reimage", "generalize", "capture", "convertToManagedDisks")


def vm_name(call: Call) -> str:
    """The VM of the address, as the law calls it."""
    return finding.vm(call).name


def _list(call: Call) -> Done:
    only = finding.group(call) if "group" in call.names else None
    expanded = call.query.get("statusonly", "").lower() == "true"
    wanted = filtering.of_vms(call)

    def find(name: str) -> Vm | None:
        row = call.fleet.vms[name]
        is_asked_for = finding.is_vm(call.fleet, row) and finding.is_in(only, row) and wanted(row)
        return row if is_asked_for and call.shows(Reach.VM, name) else None

    show = partial(shapes.vm, call.fleet, expanded=expanded)
    return page(call, call.fleet.vms, find, show)


def _show(call: Call) -> Done:
    expanded = "instanceview" in call.query.get("$expand", "").lower()
    shown = shapes.vm(call.fleet, finding.vm(call), expanded=expanded)
    return Done(shown, etag=shown["etag"])


def _view(call: Call) -> Done:
    return Done(shapes.instance_view(call.fleet, finding.vm(call)))


async def _reapply(call: Call) -> Done:
    # It is as it should be: the law puts it there again and again.
    finding.vm(call)
    return Done(status=200)


async def write_one(
    find: Callable[[Call], Vm], show: Callable[[Call], Done], call: Call, *, whole: bool
) -> Done:
    """Say something of the VM or instance of an address, or all of it; it is answered as shown."""
    row = finding.to_change(call, find)
    name = kept_name(ScopeKind.STANDALONE, row.name)
    shown = show(call).body
    assert isinstance(shown, dict)
    await properties.describe(call, properties.Wish(name, shown, whole, shapes.tags(row)))
    # It may be gone by now.
    return show(call)


async def put_one(
    find: Callable[[Call], Vm], show: Callable[[Call], Done], what: str, call: Call
) -> Done:
    """Say all of one that is there."""
    finding.to_write(call, find, what)
    return await write_one(find, show, call, whole=True)


def _routes() -> Iterable[ArmRoute]:
    reader, operator = TokenRole.READER, TokenRole.OPERATOR
    everywhere = f"{paths.SUBSCRIPTION}/{paths.VMS}"
    yield ArmRoute("GET", everywhere, "Every VM.", _list, reader, None, filters=True)
    summary = "The VMs of a resource group."
    yield ArmRoute("GET", VMS, summary, _list, reader, None, filters=True)
    yield ArmRoute("GET", VM, "One VM.", _show, reader, Reach.VM, vm_name)
    summary = "How a VM is now."
    yield ArmRoute("GET", f"{VM}/instanceView", summary, _view, reader, Reach.VM, vm_name)
    for azures, ours in ACTIONS.items():
        act = partial(act_on_one, finding.vm, ours)
        summary = f"{ours.capitalize()} a VM."
        path = f"{VM}/{azures}"
        yield ArmRoute("POST", path, summary, act, operator, Reach.VM, vm_name, body="any")
    refused = partial(refuse, finding.vm, NO_DISKS)
    deeds: tuple[tuple[str, str, Handler], ...] = (
        ("simulateEviction", "Take a Spot VM away.", partial(evict_one, finding.vm)),
        (
            "performMaintenance",
            "Approve what the platform has announced for a VM.",
            partial(maintain_one, finding.vm),
        ),
        ("reapply", "Changes nothing: a VM is as the law has it.", _reapply),
        *((word, "Refused: there are no disks.", refused) for word in REFUSED),
    )
    for word, summary, handle in deeds:
        path = f"{VM}/{word}"
        yield ArmRoute("POST", path, summary, handle, operator, Reach.VM, vm_name, body="any")
    gone = partial(delete_one, finding.vm)
    yield ArmRoute("DELETE", VM, "Delete a VM.", gone, operator, Reach.VM, vm_name)
    change = partial(write_one, finding.vm, _show, whole=False)
    summary = "Say something else of a VM."
    yield ArmRoute("PATCH", VM, summary, change, operator, Reach.VM, vm_name, body=_KIND)
    summary = "Say all of a VM; one that is not there is not made."
    put = partial(put_one, finding.vm, _show, "VMs")
    yield ArmRoute("PUT", VM, summary, put, operator, Reach.VM, vm_name, body=_KIND)


VM_ROUTES = tuple(_routes())
