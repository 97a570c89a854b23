"""Addresses of Azure Resource Manager: compared without case, names as they were written."""

import re
from datetime import date
from typing import NamedTuple

from fairnotice.arm.failures import Failure

# The subscription and the place of everything here, as the instance document has them too.
SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000001"
LOCATION = "local"

# Of each resource provider, its types that are here.
PROVIDERS = {
    "Microsoft.Compute": (
        "virtualMachines",
        "virtualMachineScaleSets",
        "virtualMachineScaleSets/virtualMachines",
        "availabilitySets",
    ),
    "Microsoft.Maintenance": ("scheduledEvents",),
}

SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = f"{SUBSCRIPTION}/resourceGroups/{{group}}"
COMPUTE = "providers/Microsoft.Compute"
VMS = f"{COMPUTE}/virtualMachines"
SCALE_SETS = f"{COMPUTE}/virtualMachineScaleSets"
AVAILABILITY_SETS = f"{COMPUTE}/availabilitySets"
OPERATIONS = f"{COMPUTE}/locations/{{location}}/operations/{{operation}}"

FIRST_YEAR = 2019
# Where a tool is to be told one that is taken.
VERSION_SHOWN = "2024-11-01"
_VERSION = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(-[a-z]+)?", re.IGNORECASE)
_NO_PARENT = re.compile(r"(/providers/[^/]+)//", re.IGNORECASE)


class Pattern(NamedTuple):
    """An address, taken apart: what is fixed in lower case, and names of what is not."""

    segments: tuple[str, ...]

    def match(self, path: str) -> dict[str, str] | None:
        """What stands for each name; None where it is another address."""
        parts = segments(path)
        if len(parts) != len(self.segments):
            return None
        found: dict[str, str] = {}
        for segment, part in zip(self.segments, parts, strict=True):
            if segment.startswith("{"):
                found[segment.strip("{}")] = part
            elif segment != part.lower():
                return None
        return found if all(found.values()) else None


def segments(path: str) -> list[str]:
    """The parts of an address.

    The one that `az resource` leaves empty, where a resource is part of no other, is passed over.
    No other is: what a script leaves empty by mistake names nothing.
    """
    return _NO_PARENT.sub(r"\1/", path).strip("/").split("/")


def pattern(path: str) -> Pattern:
    """An address as it is matched."""
    parts = segments(path)
    return Pattern(tuple(part if part.startswith("{") else part.lower() for part in parts))


def resource_id(group: str, what: str, name: str) -> str:
    """The id of a resource; `what` is one of the collections above."""
    return f"{group_id(group)}/{what}/{name}"


def group_id(group: str) -> str:
    """The id of a resource group."""
    return f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/{group}"


def checked_version(versions: list[str]) -> str:
    """The api-version that was asked for: any from 2019 on, since what is shown is always alike."""
    if not versions:
        message = "The api-version query parameter (?api-version=) is required for all requests."
        raise Failure(400, "MissingApiVersionParameter", message)
    found = _VERSION.fullmatch(versions[0])
    try:
        year = 0 if found is None or len(versions) > 1 else date.fromisoformat(found[1]).year
    except ValueError:
        year = 0
    if year < FIRST_YEAR:
        message = f"The api-version '{versions[0]}' is invalid: give a date from {FIRST_YEAR} on."
        raise Failure(400, "InvalidApiVersionParameter", message)
    return versions[0]
