"""The instance document: what a VM can read about itself, as a whole or element by element.

Clients ask it for their own name, to find themselves among an event's Resources. Every primitive
is a string, and what does not apply is an empty string, as on Azure.
"""

import json
import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from uuid import NAMESPACE_URL, uuid5

from fairnotice.model import Node, Scope, Vm
from fairnotice.wire import error_bodies
from fairnotice.words import Priority, ScopeKind

Element: TypeAlias = "str | list[Element] | dict[str, Element]"

# The subnet of a VM is not known; most networks are cut like this.
_SUBNET_PREFIX = 24
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_HOST_NAME_DIGITS = 6
_PROVIDER = "Microsoft.Compute"


class Facts(NamedTuple):
    """What the instance document says of one VM. The defaults are those of a simulated VM."""

    name: str
    vm_id: str
    location: str
    subscription_id: str
    resource_group: str
    resource_id: str
    computer_name: str
    mac: str
    addresses: tuple[str, ...] = ()
    update_domain: str = "0"
    fault_domain: str = "0"
    priority: str = "Regular"
    eviction_policy: str = ""
    scale_set: str = ""
    scale_set_id: str = ""
    placement_group_id: str = ""
    zone: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    # Clients choose the address of Azure Resource Manager by it, so it is a name they know.
    environment: str = "AzurePublicCloud"
    provider: str = _PROVIDER
    os_type: str = "Linux"
    size: str = "Standard_D2s_v5"
    publisher: str = "fairnotice"
    offer: str = "fairnotice"
    sku: str = "simulated"
    version: str = "1.0.0"


class Answer(NamedTuple):
    """What an element comes to: a status, and the element or the body of an error."""

    status: int
    body: bytes


# ---- Facts ----


def facts_of(
    vm: Vm, node: Node | None, scope: Scope, *, subscription_id: str, location: str
) -> Facts:
    """What the instance document says of this VM; the same VM always gets the same ids."""
    subscription = f"/subscriptions/{subscription_id}"
    providers = f"{subscription}/resourceGroups/{vm.resource_group}/providers"
    vm_id = uuid5(NAMESPACE_URL, f"{subscription}/{vm.name}")
    in_scale_set = scope.kind is ScopeKind.PLACEMENT_GROUP
    group_id = str(uuid5(NAMESPACE_URL, f"{subscription}/{scope.name}"))
    return Facts(
        name=vm.name,
        vm_id=str(vm_id),
        location=location,
        subscription_id=subscription_id,
        resource_group=vm.resource_group,
        resource_id=f"{providers}/{_resource(vm, scope)}",
        computer_name=computer_name(vm, scope),
        # 02 in front: an address of nobody's make.
        mac=f"02{vm_id.hex[:10]}".upper(),
        addresses=vm.addresses,
        # A VM in no set has no update domain; Azure says 0, and clients read a number.
        update_domain=str(vm.update_domain or 0),
        fault_domain=str(node.fault_domain if node else 0),
        priority=str(vm.priority),
        eviction_policy=str(vm.eviction_policy) if vm.priority is Priority.SPOT else "",
        scale_set=scope.of if in_scale_set else "",
        # The page of Azure's Instance Metadata Service: not with uniform orchestration.
        scale_set_id=f"{providers}/{_PROVIDER}/virtualMachineScaleSets/{scope.of}"
        if in_scale_set and not instance_number(vm, scope)
        else "",
        placement_group_id=group_id if in_scale_set else "",
        zone=vm.zone or "",
        tags=vm.tags,
    )


def _resource(vm: Vm, scope: Scope) -> str:
    """The end of a resource id: provider, type and name."""
    if scope.kind is ScopeKind.CLOUD_SERVICE:
        return f"{_PROVIDER}/cloudServices/{scope.of}/roleInstances/{vm.name}"
    if number := instance_number(vm, scope):
        return f"{_PROVIDER}/virtualMachineScaleSets/{scope.of}/virtualMachines/{number}"
    return f"{_PROVIDER}/virtualMachines/{vm.name}"


def instance_number(vm: Vm, scope: Scope) -> str:
    """The `47` of an instance `batch_47` of a uniform scale set; empty for any other VM."""
    if scope.kind is not ScopeKind.PLACEMENT_GROUP:
        return ""
    scale_set, _, number = vm.name.rpartition("_")
    return number if scale_set == scope.of and re.fullmatch("[0-9]{1,9}", number) else ""


def computer_name(vm: Vm, scope: Scope) -> str:
    """The host name, which is not the resource name in a scale set: there `batch00001b`."""
    number = instance_number(vm, scope)
    if not number:
        return vm.name
    digits = ""
    rest = int(number)
    for _ in range(_HOST_NAME_DIGITS):
        rest, digit = divmod(rest, len(_BASE_36))
        digits = _BASE_36[digit] + digits
    return scope.of + digits


# ---- The document ----


def tree(facts: Facts, version: str) -> dict[str, Element]:
    """The whole document. Newer versions have more elements, and none less."""
    elements = _always(facts)
    elements |= {name: element for since, name, element in _later(facts) if since <= version}
    compute = dict(sorted(elements.items(), key=lambda item: item[0].lower()))
    return {"compute": compute, "network": {"interface": [_interface(facts)]}}


def _always(facts: Facts) -> dict[str, Element]:
    return {
        "azEnvironment": facts.environment,
        "evictionPolicy": facts.eviction_policy,
        "location": facts.location,
        "name": facts.name,
        "offer": facts.offer,
        "osType": facts.os_type,
        "placementGroupId": facts.placement_group_id,
        "platformFaultDomain": facts.fault_domain,
        "platformUpdateDomain": facts.update_domain,
        "priority": facts.priority,
        "provider": facts.provider,
        "publisher": facts.publisher,
        "resourceGroupName": facts.resource_group,
        "resourceId": facts.resource_id,
        "sku": facts.sku,
        "subscriptionId": facts.subscription_id,
        "tags": ";".join(f"{name}:{value}" for name, value in facts.tags),
        "tagsList": [{"name": name, "value": value} for name, value in facts.tags],
        "version": facts.version,
        "vmId": facts.vm_id,
        "vmScaleSetName": facts.scale_set,
        "vmSize": facts.size,
        "zone": facts.zone,
    }


def _later(facts: Facts) -> Iterator[tuple[str, str, Element]]:
    """Since which version Azure has what else, and what it is for a VM of ours."""
    yield "2018-04-02", "plan", {"name": "", "product": "", "publisher": ""}
    yield "2018-04-02", "publicKeys", []
    yield "2019-02-01", "customData", ""
    yield "2019-06-01", "storageProfile", _storage(facts)
    yield "2020-06-01", "isHostCompatibilityLayerVm", "false"
    yield (
        "2020-06-01",
        "securityProfile",
        {"secureBootEnabled": "false", "virtualTpmEnabled": "false"},
    )
    yield (
        "2020-07-15",
        "osProfile",
        {
            "adminUsername": "",
            "computerName": facts.computer_name,
            "disablePasswordAuthentication": "true",
        },
    )
    yield "2020-09-01", "licenseType", ""
    yield "2021-01-01", "userData", ""
    yield "2021-03-01", "extendedLocation", {"name": "", "type": ""}
    yield "2021-03-01", "virtualMachineScaleSet", {"id": facts.scale_set_id}
    yield "2021-10-01", "platformSubFaultDomain", ""
    yield "2021-11-01", "additionalCapabilities", {"hibernationEnabled": "false"}
    yield "2021-11-15", "host", {"id": ""}
    yield "2021-11-15", "hostGroup", {"id": ""}
    yield "2023-11-15", "physicalZone", ""


def _storage(facts: Facts) -> dict[str, Element]:
    return {
        "dataDisks": [],
        "imageReference": {
            "id": "",
            "offer": facts.offer,
            "publisher": facts.publisher,
            "sku": facts.sku,
            "version": facts.version,
        },
        "osDisk": {
            "caching": "ReadWrite",
            "createOption": "FromImage",
            "diskSizeGB": "",
            "managedDisk": {"id": "", "storageAccountType": ""},
            "name": f"{facts.name}_OsDisk",
            "osType": facts.os_type,
            "writeAcceleratorEnabled": "false",
        },
        "resourceDisk": {"size": "0"},
    }


def _interface(facts: Facts) -> dict[str, Element]:
    """The one network interface a VM has, with all its addresses."""
    known = [address for text in facts.addresses if (address := _address(text)) is not None]
    fourth = [address for address in known if isinstance(address, IPv4Address)]
    sixth = [address for address in known if isinstance(address, IPv6Address)]
    subnets = [ip_network((address, _SUBNET_PREFIX), strict=False) for address in fourth[:1]]
    return {
        "ipv4": {
            "ipAddress": [
                {"privateIpAddress": str(address), "publicIpAddress": ""} for address in fourth
            ],
            "subnet": [
                {"address": str(subnet.network_address), "prefix": str(subnet.prefixlen)}
                for subnet in subnets
            ],
        },
        "ipv6": {"ipAddress": [{"privateIpAddress": str(address)} for address in sixth]},
        "macAddress": facts.mac,
    }


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address, or None for one that is not of the internet, such as a socket's path."""
    try:
        return ip_address(text)
    except ValueError:
        return None


# ---- Answers ----


def answer(facts: Facts, path: Sequence[str], version: str, *, text: bool) -> Answer:
    """The element at this path: as JSON, or with `format=text` as text.

    As text, a value is itself and a container the names of what it holds, one a line, those of
    containers with a slash at the end. Names are compared without case; a list counts from 0.
    """
    element: Element = tree(facts, version)
    for name in path:
        found = _children(element).get(name.lower())
        if found is None:
            return Answer(404, error_bodies.NO_SUCH_ELEMENT)
        element = found[1]
    if text:
        return Answer(200, _as_text(element).encode("utf-8", "backslashreplace"))
    if isinstance(element, str):
        return Answer(400, error_bodies.LEAF_WITHOUT_TEXT)
    written = json.dumps(element, ensure_ascii=False, separators=(",", ":"))
    return Answer(200, written.encode("utf-8", "backslashreplace"))


def _as_text(element: Element) -> str:
    if isinstance(element, str):
        return element
    children = _children(element).values()
    return "\n".join(name if isinstance(child, str) else f"{name}/" for name, child in children)


def _children(element: Element) -> dict[str, tuple[str, Element]]:
    """What an element holds: by its name in lower case, its name and itself."""
    if isinstance(element, str):
        return {}
    if isinstance(element, list):
        return {str(index): (str(index), child) for index, child in enumerate(element)}
    return {name.lower(): (name, child) for name, child in element.items()}
