"""PUT and PATCH: what of a resource is obeyed, what is kept without effect, what is refused.

| part | |
|---|---|
| `scheduledEventsPolicy.userInitiatedReboot`, `.userInitiatedRedeploy` | obeyed (rule 18) |
| `virtualMachineProfile.scheduledEventsProfile.terminateNotificationProfile` | obeyed (rule 2) |
| `sku.capacity` of a scale set | obeyed (arm/scaling.py) |
| a time of notice that is off, an approval that is not automatic | kept until they are obeyed |
| ids, names, states and views, network interfaces | ours: passed over |
| what is fixed: where it is, its size, its sets (`_FIXED`) | refused, unless it is as it was |
| passwords, custom data, user data, protected settings | never kept: nobody is shown them |
| what is of another kind than Azure has it | refused (arm/kinds.py) |
| everything else | kept, and given back |
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fairnotice.arm import shapes
from fairnotice.arm.failures import Failure, malformed, of_refusal
from fairnotice.arm.kinds import must_fit
from fairnotice.arm.merging import (
    as_called_in,
    found_at,
    merged,
    replacing,
    standing_at,
    without,
)
from fairnotice.arm.route import Call
from fairnotice.control.service import Who
from fairnotice.engine import Code, Refusal
from fairnotice.engine.commands import Describe, Notice
from fairnotice.engine.describing import version
from fairnotice.engine.notice import TERMINATE_NOTICE_MINUTES_MAX, TERMINATE_NOTICE_MINUTES_MIN
from fairnotice.model import ScaleSet
from fairnotice.words import EventType, ScopeKind

Json = dict[str, Any]

# The journal takes it with every change of it.
KEPT_BYTES_MAX = 64 * 1024
TERMINATE = ("scheduledEventsProfile", "terminateNotificationProfile")
OF_SET = ("properties", "virtualMachineProfile", *TERMINATE)
OF_VM = ("properties", *TERMINATE)
_POLICY = ("properties", "scheduledEventsPolicy")
_APPROVALS = {
    event_type: (*_POLICY, name, "automaticallyApprove")
    for event_type, name in shapes.POLICIES.items()
}
# What is ours to say, whatever is sent: it was read from here, and comes back with the rest.
_OURS: tuple[tuple[str, ...], ...] = (
    ("id",),
    ("name",),
    ("type",),
    ("etag",),
    ("location",),
    ("systemData",),
    ("identity",),
    ("zones",),
    ("instanceId",),
    ("sku", "capacity"),
    ("sku", "name"),
    ("tags",),
    ("properties", "availabilitySet"),
    ("properties", "evictionPolicy"),
    ("properties", "hardwareProfile", "vmSize"),
    ("properties", "instanceView"),
    ("properties", "latestModelApplied"),
    ("properties", "modelDefinitionApplied"),
    ("properties", "networkProfile"),
    ("properties", "networkProfileConfiguration"),
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
    ("properties", "virtualMachineResourceId"),
    ("properties", "virtualMachineScaleSet"),
    ("properties", "virtualMachines"),
    ("properties", "vmId"),
    OF_SET,
)
# What cannot be another by PUT or PATCH, and how it would be.
_FIXED = {
    ("location",): "There is one location",
    ("zones",): "Declare it in the fleet file",
    ("identity",): "A VM gets one by `fairnotice token create --vm`",
    ("sku", "name"): "What it is made of is not changed here, and machines are not resized",
    ("properties", "hardwareProfile", "vmSize"): (
        "What it is made of is not changed here, and machines are not resized"
    ),
    ("properties", "priority"): "Declare it in the fleet file",
    ("properties", "virtualMachineProfile", "priority"): "Declare it in the fleet file",
    ("properties", "evictionPolicy"): "Only Spot has one; declare it in the fleet file",
    ("properties", "virtualMachineProfile", "evictionPolicy"): (
        "Only Spot has one; declare it in the fleet file"
    ),
    ("properties", "orchestrationMode"): "Scale sets here are uniform",
    ("properties", "singlePlacementGroup"): "Declare its placement groups in the fleet file",
    ("properties", "availabilitySet", "id"): "Declare it in the fleet file",
    ("properties", "virtualMachineScaleSet", "id"): "Declare it in the fleet file",
}
# As on Azure, where nobody says how long.
DEFAULT_NOTICE = "PT5M"
# What Azure takes and shows nobody, or only whom asks for it: here it would mean nothing, and
# stand in the journal in clear.
_SECRETS = frozenset(
    ("adminpassword", "additionalunattendcontent", "customdata", "protectedsettings", "userdata")
)
# What Azure calls them (kinds.py).
KINDS = {
    ScopeKind.STANDALONE: "VirtualMachine",
    ScopeKind.PLACEMENT_GROUP: "VirtualMachineScaleSet",
    ScopeKind.AVAILABILITY_SET: "AvailabilitySet",
}
INSTANCE = "VirtualMachineScaleSetVM"
# Nothing was said of it: it stays as it is.
_LEFT = object()
_MINUTES = re.compile(r"PT([0-9]{1,4})M")


class Wish(NamedTuple):
    """How a resource shall be."""

    # As the law calls it: `vm:db`.
    resource: str
    # As it is shown now.
    shown: Json
    # PATCH says only what shall be another; PUT says all of it.
    whole: bool
    # The tags that it has as long as nobody says others.
    usual_tags: Mapping[str, str] = {}

    @property
    def kind(self) -> ScopeKind:
        """What it is."""
        return ScopeKind(self.resource.partition(":")[0])

    @property
    def azures(self) -> str:
        """What Azure calls it: to the law an instance of a scale set is a VM."""
        return INSTANCE if "instanceId" in self.shown else KINDS[self.kind]


async def describe(call: Call, wish: Wish) -> None:
    """Have it so: all of it, or nothing."""
    who = Who(call.who.requester, f"{call.who.key}:described")
    if call.service.has_request(who):
        # A repeat is told that it was taken: what others have said since stays, and an If-Match
        # that it brings speaks of what it has changed itself.
        return
    body = call.body or {}
    policy, notice = _policy(body, wish), _notice(body, wish)
    must_fit(body, wish.azures)
    _must_stay(body, wish.shown)
    read = version(call.fleet, wish.resource)
    expected = call.expects(read)
    command = Describe(
        resource=wish.resource,
        kept=_text(_after(shapes.kept(call.fleet, wish.resource), body, wish)),
        automatically_approve=policy,
        terminate_notice=notice,
        # Who changes a part has read the rest here, just now: nobody may have changed it since.
        expected=read if expected is None and not wish.whole else expected,
    )
    result = await call.service.describe(command, who)
    if isinstance(result, Refusal):
        if result.code is Code.CHANGED and not call.expected:
            raise Failure(409, "Conflict", str(result))
        raise of_refusal(result)


def as_change(body: Json, shown: Json) -> Json:
    """A PUT that replaces what it names, and leaves what it does not speak of.

    So a scale set is put: `az vmss scale` sends a location and a capacity, and properties without
    one in them, and expects that all the rest stays.
    """
    parts = body.get("properties")
    if isinstance(parts, dict):
        before = shown["properties"]
        said = as_called_in(before, parts)
        parts = {name: replacing(before.get(name), part) for name, part in said.items()}
    body = as_called_in(shown, body)
    changed = {name: replacing(shown.get(name), part) for name, part in body.items()}
    return {**changed, "properties": parts} if "properties" in body else changed


def _must_stay(body: Json, shown: Json) -> None:
    for path, remedy in _FIXED.items():
        asked, is_now = found_at(body, *path), found_at(shown, *path)
        if asked in (None, [], {}) or _low(asked) == _low(is_now):
            continue
        message = f"Changing property '{'.'.join(path)}' is not allowed. {remedy}."
        raise Failure(409, "PropertyChangeNotAllowed", message, ".".join(path))


def _low(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _after(before: Json, body: Json, wish: Wish) -> Json:
    """What shall be kept from now on."""
    kept = merged({} if wish.whole else before, _kept(body))
    kept = _with_time_for_later(kept, body, wish)
    kept.pop("tags", None)
    tags = _tags(before, body, wish)
    if tags is not None and tags != wish.usual_tags:
        kept["tags"] = tags
    return kept


def _with_time_for_later(kept: Json, body: Json, wish: Wish) -> Json:
    """With the time that is not obeyed while notice is off: switched on again, it counts."""
    profile = _profile(body, wish)
    if profile is None or wish.kind is not ScopeKind.PLACEMENT_GROUP:
        return kept
    kept, time = without(kept, *OF_SET), profile.get("notBeforeTimeout")
    if time is None or profile.get("enable"):
        return kept
    return merged(kept, standing_at(time, *OF_SET, "notBeforeTimeout"))


def _tags(before: Json, body: Json, wish: Wish) -> Json | None:
    """Those that shall be there instead of the usual ones; None where nobody has said any."""
    if wish.whole:
        return merged({}, body.get("tags") or {})
    if "tags" not in body:
        return before.get("tags")
    return {} if body["tags"] is None else merged(wish.shown["tags"], body["tags"])


def _kept(body: Json) -> Json:
    """What means nothing here."""
    for path in _OURS:
        body = without(body, *path)
    for path in _APPROVALS.values():
        if found_at(body, *path):
            # That it is so stands in the law's own row.
            body = without(body, *path)
    found: Json = _without_secrets(body)
    return found


def _without_secrets(value: Any) -> Any:  # noqa: ANN401, whatever was sent
    """The same without what nobody may be shown, however deep it stands."""
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]
    if not isinstance(value, dict):
        return value
    open_parts = ((name, part) for name, part in value.items() if name.lower() not in _SECRETS)
    return {name: _without_secrets(part) for name, part in open_parts}


def _text(kept: Json) -> str:
    text = msgspec.json.encode(kept, order="deterministic")
    if len(text) > KEPT_BYTES_MAX:
        message = f"At most {KEPT_BYTES_MAX:,} bytes are kept of a resource's properties."
        raise Failure(413, "RequestContentTooLarge", message)
    return text.decode()


# ---- What is obeyed ----


def _asked(body: Json, wish: Wish, *path: str) -> Any:  # noqa: ANN401, whatever was sent
    """What is said there: null takes it away, as does a PUT that leaves it out."""
    value: Any = body
    for number, name in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise malformed(f"{'.'.join(path[:number])} is no object")
        if name not in value:
            return None if wish.whole else _LEFT
        value = value[name]
    if not isinstance(value, dict | None):
        raise malformed(f"{'.'.join(path)} is no object")
    return value


def _policy(body: Json, wish: Wish) -> tuple[EventType, ...] | None:
    """What shall be approved automatically; None where that is left as it is."""
    said = _asked(body, wish, *_POLICY)
    if said is _LEFT:
        return None
    shown = found_at(wish.shown, *_POLICY) or {}
    after = {} if said is None else merged({} if wish.whole else shown, said)
    approved = tuple(event_type for event_type in _APPROVALS if _approves(after, event_type))
    # Nobody has to be told that nothing is approved where nothing was, whatever else was said.
    had = any(_approves(shown, event_type) for event_type in _APPROVALS)
    return approved if approved or had else None


def _approves(policy: Json, event_type: EventType) -> bool:
    path = _APPROVALS[event_type]
    name, word = path[-2:]
    part = policy.get(name, {})
    is_automatic = found_at(part, word)
    if not isinstance(part, dict) or not isinstance(is_automatic, bool | None):
        raise _misfit(".".join(path), "true or false")
    return bool(is_automatic)


def _notice(body: Json, wish: Wish) -> Notice | None:
    """How much terminate notice shall be given; None where that is left as it is."""
    profile = _profile(body, wish)
    if profile is None:
        return None
    path = _terminate_path(wish)
    enable = profile.get("enable")
    if not isinstance(enable, bool | None):
        raise _misfit(f"{'.'.join(path)}.enable", "true or false")
    time = profile.get("notBeforeTimeout")
    minutes = _minutes(DEFAULT_NOTICE if time is None else time)
    if wish.kind is ScopeKind.PLACEMENT_GROUP:
        return Notice(minutes if enable else None)
    if enable:
        message = (
            "Terminate notification is given to instances of scale sets only: "
            "say it of the scale set."
        )
        raise Failure(400, "InvalidParameter", message, ".".join(path))
    return None


def _terminate_path(wish: Wish) -> tuple[str, ...]:
    return OF_SET if wish.kind is ScopeKind.PLACEMENT_GROUP else OF_VM


def _profile(body: Json, wish: Wish) -> Json | None:
    """How terminate notice shall be, with what is left as it is shown; None where all of it is."""
    path = _terminate_path(wish)
    said = _asked(body, wish, *path)
    if said is _LEFT:
        return None
    shown = {} if wish.whole else found_at(wish.shown, *path)
    return {} if said is None else merged(shown or {}, said)


def _minutes(text: object) -> int:
    """5 to 15 minutes, as ISO 8601 writes them."""
    found = _MINUTES.fullmatch(text) if isinstance(text, str) else None
    minutes = 0 if found is None else int(found[1])
    low, high = TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX
    if not low <= minutes <= high:
        raise _misfit(f"{'.'.join(OF_SET)}.notBeforeTimeout", f"PT{low}M to PT{high}M")
    return minutes


def capacity(body: Json, row: ScaleSet) -> int | None:
    """How many instances a scale set shall have; None where nobody says so."""
    wanted = found_at(body, "sku", "capacity")
    if wanted is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
        raise _misfit("sku.capacity", f"how many instances {row.name} shall have, from 0 on")
    return int(wanted)


def _misfit(target: str, wanted: str) -> Failure:
    message = f"The value of parameter {target} is invalid: give {wanted}."
    return Failure(400, "InvalidParameter", message, target)
