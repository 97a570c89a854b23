"""What is asked of VMs, by whichever address: the law is told, and its request is followed."""

from collections.abc import Callable, Iterable, Sequence

from fairnotice.arm import finding, shapes
from fairnotice.arm.failures import Failure, NotThere, forbidden, of_refusal
from fairnotice.arm.route import Call, Done
from fairnotice.control.limits import Reach
from fairnotice.engine import Refusal
from fairnotice.engine.describing import version
from fairnotice.engine.keeping import kept_name
from fairnotice.engine.tables import known_key
from fairnotice.model import Event, Vm
from fairnotice.words import ScopeKind

ACCEPTED = 202
NO_DISKS = "That is not done here: there are no disks to do it."


async def on_vms(call: Call, what: str, vms: Iterable[Vm], *, expected: str | None = None) -> Done:
    """Restart, redeploy, evict, delete, stop, start or deallocate VMs: all or none."""
    names = tuple(vm.name for vm in vms)
    if not names:
        raise Failure(400, "InvalidParameter", "There is no instance to do it to.", "instanceIds")
    if not all(call.shows(Reach.VM, name) for name in names):
        raise forbidden()
    result = await call.service.on_vms(what, names, call.who, expected=expected)
    if isinstance(result, Refusal):
        raise of_refusal(result)
    return Done(status=ACCEPTED, request=followed(call))


def must_not_hibernate(call: Call) -> None:
    """Refused: it would be deallocated, and what is in its memory lost."""
    if call.query.get("hibernate", "").lower() == "true":
        message = "Nothing is hibernated here. Leave out hibernate to deallocate it."
        raise Failure(409, "OperationNotAllowed", message, "hibernate")


def followed(call: Call) -> str | None:
    """The request of this call, which the law knows by its key."""
    assert call.who.key is not None
    return call.fleet.request_by_key.get(known_key(call.who.requester, call.who.key))


def repeated(call: Call) -> Done | None:
    """The same answer to a repeat of what is done already, however the fleet is now."""
    request = followed(call)
    return None if request is None else Done(status=ACCEPTED, request=request)


async def delete(
    call: Call, find: Callable[[Call], Sequence[Vm]], *, as_read: bool = False
) -> Done:
    """Delete the VMs of the address; a repeat of the same request is told of what it began.

    What is not there is as it was asked to be: 204, as Azure answers. `as_read` where If-Match
    speaks of the one that is found.
    """
    begun = repeated(call)
    if begun is not None:
        return begun
    try:
        vms = find(call)
    except NotThere:
        return not_there_anyway(call)
    name = kept_name(ScopeKind.STANDALONE, vms[0].name) if as_read else None
    expected = None if name is None else call.expects(version(call.fleet, name))
    try:
        return await on_vms(call, "delete", vms, expected=expected)
    except NotThere:
        # Gone since it was found, by somebody who was faster: what there is now counts.
        return await delete(call, find, as_read=as_read)


def refuse(find: Callable[[Call], object], why: str, call: Call) -> Done:
    """What is never done here is said of what is there; of anything else, that it is not there."""
    find(call)
    raise Failure(409, "OperationNotAllowed", why)


def not_there_anyway(call: Call) -> Done:
    """What is answered to a DELETE of nothing, in a resource group that must be there."""
    finding.group(call)
    return Done(status=204)


async def perform_maintenance(call: Call, find: Callable[[Call], Iterable[Vm]]) -> Done:
    """Approve what the platform has announced for the VMs of the address.

    A repeat approves nothing that was announced after the first one.
    """
    begun = repeated(call)
    if begun is not None:
        return begun
    found = [event for vm in find(call) for event in shapes.maintenance(call.fleet, vm.name)]
    if not found:
        message = "No maintenance is announced that waits for an approval."
        raise Failure(409, "OperationNotAllowed", message)
    await approve(call, found)
    return Done(status=ACCEPTED, request=followed(call))


async def approve(call: Call, events: Iterable[Event]) -> None:
    """Give the go-ahead for these: all of them, or none."""
    names = tuple(dict.fromkeys(event.id for event in events))
    # An event of several VMs is approved only by who may touch each of them.
    if not all(call.shows(Reach.EVENT, name) for name in names):
        raise forbidden()
    result = await call.service.approve_all(names, call.who)
    if isinstance(result, Refusal):
        raise of_refusal(result)


# ---- The one VM or instance of an address, which `find` finds ----


async def act_on_one(find: Callable[[Call], Vm], what: str, call: Call) -> Done:
    """Restart, redeploy, stop, start or deallocate it."""
    must_not_hibernate(call)
    # A repeat first: what it began may have been followed by a deletion.
    return repeated(call) or await on_vms(call, what, [find(call)])


async def evict_one(find: Callable[[Call], Vm], call: Call) -> Done:
    """Take it away, where it is a Spot VM."""
    if repeated(call) is None:
        await on_vms(call, "evict", [find(call)])
    return Done(status=204)


async def delete_one(find: Callable[[Call], Vm], call: Call) -> Done:
    """Delete it, where it is as whoever asks has read it."""
    return await delete(call, lambda call: [find(call)], as_read=True)


async def maintain_one(find: Callable[[Call], Vm], call: Call) -> Done:
    """Approve what the platform has announced for it."""
    return await perform_maintenance(call, lambda call: [find(call)])
