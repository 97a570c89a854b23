"""`$filter` of a list: those that Azure describes and `az` sends. Any other is refused.

One that is passed over would show more than was asked for, and whoever deletes what he is shown
would delete all of it.
"""

import re
from collections.abc import Callable

from fairnotice.arm import shapes
from fairnotice.arm.failures import Failure
from fairnotice.arm.route import ArmRoute, Call
from fairnotice.model import Vm

FILTER = "$filter"
Filter = Callable[[Vm], bool]

# `az vm list --vmss`; az writes the name of the property in quotes, Azure's pages do not always.
_OF_SET = re.compile(r"'?virtualMachineScaleSet/id'?\s+eq\s+'?/[^']+'?", re.IGNORECASE)
# `az vmss list-instances --filter`
_STATUS = re.compile(
    r"startswith\(instanceView/statuses/code,\s*'([^']*)'\)\s+eq\s+true", re.IGNORECASE
)
_NEWEST_MODEL = re.compile(r"properties/latestModelApplied\s+eq\s+(true|false)", re.IGNORECASE)


def must_be_unfiltered(route: ArmRoute, call: Call) -> None:
    """Refused where nothing looks at it."""
    if call.query.get(FILTER) and not route.filters:
        raise _not_understood(call)


def of_vms(call: Call) -> Filter:
    """Which VMs are asked for."""
    asked = call.query.get(FILTER)
    if not asked:
        return _everything
    if not _OF_SET.fullmatch(asked):
        raise _not_understood(call)
    # All scale sets here are uniform, and their instances are in no list of VMs, as on Azure.
    return lambda _: False


def of_instances(call: Call) -> Filter:
    """Which instances of a scale set are asked for."""
    asked = call.query.get(FILTER)
    if not asked:
        return _everything
    found = _STATUS.fullmatch(asked)
    if found:
        begins = found[1].lower()
        return lambda vm: any(code.lower().startswith(begins) for code in shapes.codes(vm))
    found = _NEWEST_MODEL.fullmatch(asked)
    if not found:
        raise _not_understood(call)
    # They are never behind their scale set.
    is_wanted = found[1].lower() == "true"
    return lambda _: is_wanted


def _everything(_: Vm) -> bool:
    return True


def _not_understood(call: Call) -> Failure:
    message = f"The filter {call.query[FILTER]!r} is not understood there."
    return Failure(400, "InvalidParameter", message, FILTER)
