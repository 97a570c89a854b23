"""PUT and PATCH: what of a resource is obeyed, what is kept without effect, what is refused.

| part | |
|---|---|
| `scheduledEventsPolicy.userInitiatedReboot`, `.userInitiatedRedeploy` | obeyed (rule 18) |
| `virtualMachineProfile.scheduledEventsProfile.terminateNotificationProfile` | obeyed (rule 2) |
| `sku.capacity` of a scale set | obeyed (arm/scaling.py) |
| ids, names, states and views, network interfaces | ours: passed over |
| `location`, `priority`, `availabilitySet` | refused where they are others |
| everything else | kept, and given back |
"""

import re
from typing import Any, NamedTuple

import msgspec

from fairnotice.arm import shapes
from fairnotice.arm.failures import Failure, malformed, of_refusal
from fairnotice.arm.merging import found_at, merged, without
from fairnotice.arm.route import Call
from fairnotice.engine import Code, Refusal
from fairnotice.engine.commands import Describe, Notice
from fairnotice.engine.describing import version
from fairnotice.engine.notice import TERMINATE_NOTICE_MINUTES_MAX, TERMINATE_NOTICE_MINUTES_MIN
from fairnotice.model import ScaleSet
from fairnotice.words import EventType

Json = dict[str, Any]

# The journal takes it with every change of it.
KEPT_BYTES_MAX = 64 * 1024
TERMINATE = ("scheduledEventsProfile", "terminateNotificationProfile")
OF_SET = ("properties", "virtualMachineProfile", *TERMINATE)
OF_VM = ("properties", *TERMINATE)
_POLICY = ("properties", "scheduledEventsPolicy")
# What is ours to say, whatever is sent: it was read from here, and comes back with the rest.
_OURS: tuple[tuple[str, ...], ...] = (
    ("id",),
    ("name",),
    ("type",),
    ("etag",),
    ("location",),
    ("systemData",),
    ("instanceId",),
    ("sku", "capacity"),
    ("properties", "availabilitySet"),
    ("properties", "evictionPolicy"),
    ("properties", "instanceView"),
    ("properties", "networkProfile"),
    ("properties", "orchestrationMode"),
    ("properties", "priority"),
    ("properties", "provisioningState"),
    ("properties", "singlePlacementGroup"),
    ("properties", "timeCreated"),
    ("properties", "uniqueId"),
    ("properties", "virtualMachineProfile", "evictionPolicy"),
    ("properties", "virtualMachineProfile", "networkProfile"),
    ("properties", "virtualMachineProfile", "priority"),
    ("properties", "virtualMachineProfile", "timeCreated"),
    ("properties", "virtualMachines"),
    ("properties", "vmId"),
    OF_SET,
    OF_VM,
    *((*_POLICY, name) for name in shapes.POLICIES.values()),
)
# What cannot be another by PUT or PATCH, and how it would be.
_FIXED = {
    ("location",): "There is one location",
    ("properties", "priority"): "Declare it in the fleet file",
    ("properties", "virtualMachineProfile", "priority"): "Declare it in the fleet file",
    ("properties", "availabilitySet", "id"): "Declare it in the fleet file",
}
# As on Azure, where nobody says how long.
DEFAULT_NOTICE = "PT5M"
_MINUTES = re.compile(r"PT([0-9]{1,4})M")


class Wish(NamedTuple):
    """How a resource shall be."""

    # As the law calls it: `vm:db`.
    resource: str
    # As it is shown now.
    shown: Json
    # PATCH says only what shall be another; PUT says all of it.
    whole: bool


async def describe(call: Call, wish: Wish) -> None:
    """Have it so: all of it, or nothing."""
    body = call.body or {}
    _must_stay(body, wish.shown)
    read = version(call.fleet, wish.resource)
    before = {} if wish.whole else shapes.kept(call.fleet, wish.resource)
    command = Describe(
        resource=wish.resource,
        kept=_text(merged(before, _kept(body))),
        automatically_approve=_policy(body, wish),
        terminate_notice=_notice(body, wish),
        # Who changes a part has read the rest here, just now: nobody may have changed it since.
        expected=call.expected if wish.whole or call.expected else read,
    )
    result = await call.service.describe(command)
    if isinstance(result, Refusal):
        if result.code is Code.CHANGED and call.expected is None:
            raise Failure(409, "Conflict", str(result))
        raise of_refusal(result)


def _must_stay(body: Json, shown: Json) -> None:
    for path, remedy in _FIXED.items():
        asked, is_now = found_at(body, *path), found_at(shown, *path)
        if asked is None or _low(asked) == _low(is_now):
            continue
        message = f"Changing property '{'.'.join(path)}' is not allowed. {remedy}."
        raise Failure(409, "PropertyChangeNotAllowed", message, ".".join(path))


def _low(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _kept(body: Json) -> Json:
    """What means nothing here."""
    for path in _OURS:
        body = without(body, *path)
    return body


def _text(kept: Json) -> str:
    text = msgspec.json.encode(kept, order="deterministic").decode()
    if len(text) > KEPT_BYTES_MAX:
        message = f"At most {KEPT_BYTES_MAX:,} bytes are kept of a resource's properties."
        raise Failure(413, "RequestContentTooLarge", message)
    return text


# ---- What is obeyed ----


def _policy(body: Json, wish: Wish) -> tuple[EventType, ...] | None:
    """What shall be approved automatically; None where that is left as it is."""
    said = found_at(body, *_POLICY)
    if said is None:
        had = found_at(wish.shown, *_POLICY)
        return () if wish.whole and had else None
    if not isinstance(said, dict):
        raise malformed("properties.scheduledEventsPolicy is no object")
    approved = []
    for event_type, name in shapes.POLICIES.items():
        source = wish.shown if not wish.whole and name not in said else body
        word = found_at(source, *_POLICY, name, "automaticallyApprove")
        if word not in (None, True, False):
            raise _misfit(f"{'.'.join(_POLICY)}.{name}.automaticallyApprove", "true or false")
        if word:
            approved.append(event_type)
    if not approved and not found_at(wish.shown, *_POLICY):
        # Nobody has to be told that nothing is approved where nothing was.
        return None
    return tuple(approved)


def _notice(body: Json, wish: Wish) -> Notice | None:
    """How much terminate notice shall be given; None where that is left as it is."""
    if not wish.resource.startswith("scale-set:"):
        said = found_at(body, *OF_VM)
        if found_at(body, *OF_VM, "enable"):
            message = (
                "Terminate notification is given to instances of scale sets only: "
                "say it of the scale set."
            )
            raise Failure(400, "InvalidParameter", message, ".".join(OF_VM))
        return None
    said = found_at(body, *OF_SET)
    if said is None:
        return Notice(None) if _is_taken_away(body, *OF_SET) else None
    if not isinstance(said, dict):
        raise malformed(f"{'.'.join(OF_SET)} is no object")
    shown = found_at(wish.shown, *OF_SET)
    profile = said if wish.whole else merged(shown, said)
    if profile.get("enable") not in (None, True, False):
        raise _misfit(f"{'.'.join(OF_SET)}.enable", "true or false")
    time = profile.get("notBeforeTimeout")
    minutes = _minutes(DEFAULT_NOTICE if time is None else time)
    return Notice(minutes if profile.get("enable") else None)


def _is_taken_away(body: Json, *path: str) -> bool:
    """Whether null stands there, or in place of the profile that it is in."""
    for depth in (len(path), len(path) - 1):
        above = found_at(body, *path[: depth - 1])
        if isinstance(above, dict) and path[depth - 1] in above and above[path[depth - 1]] is None:
            return True
    return False


def _minutes(text: object) -> int:
    """5 to 15 minutes, as ISO 8601 writes them."""
    found = _MINUTES.fullmatch(text) if isinstance(text, str) else None
    minutes = 0 if found is None else int(found[1])
    low, high = TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX
    if not low <= minutes <= high:
        raise _misfit(f"{'.'.join(OF_SET)}.notBeforeTimeout", f"PT{low}M to PT{high}M")
    return minutes


def capacity(body: Json, row: ScaleSet, now: int) -> int:
    """How many instances a scale set shall have."""
    wanted = found_at(body, "sku", "capacity")
    if wanted is None:
        return now
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
        raise _misfit("sku.capacity", f"how many instances {row.name} shall have, from 0 on")
    return wanted


def _misfit(target: str, wanted: str) -> Failure:
    message = f"The value of parameter {target} is invalid: give {wanted}."
    return Failure(400, "InvalidParameter", message, target)
