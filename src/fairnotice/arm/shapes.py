"""From rows of the fleet to what Azure Resource Manager shows."""

from collections import Counter
from typing import Any

import msgspec

from fairnotice.arm import finding, paths
from fairnotice.arm.merging import merged
from fairnotice.arm.signing import TENANT
from fairnotice.engine import Fleet
from fairnotice.engine.describing import version
from fairnotice.engine.fleet_changes import UPDATE_DOMAINS
from fairnotice.engine.keeping import NOTHING, kept_name
from fairnotice.engine.removing import staying
from fairnotice.model import Event, ScaleSet, Scope, Vm
from fairnotice.wire.instance import Facts, facts_of
from fairnotice.words import EventSource, EventStatus, EventType, Power, Priority, ScopeKind

Json = dict[str, Any]

_POWERS = {
    Power.RUNNING: ("PowerState/running", "VM running"),
    Power.STOPPED: ("PowerState/stopped", "VM stopped"),
    Power.DEALLOCATED: ("PowerState/deallocated", "VM deallocated"),
}
# Which part of a policy approves what.
POLICIES = {
    EventType.REBOOT: "userInitiatedReboot",
    EventType.REDEPLOY: "userInitiatedRedeploy",
}
FAULT_DOMAINS = 3


def subscription() -> Json:
    """The one subscription there is."""
    return {
        "id": f"/subscriptions/{paths.SUBSCRIPTION_ID}",
        "subscriptionId": paths.SUBSCRIPTION_ID,
        "tenantId": TENANT,
        "displayName": "fairnotice",
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "subscriptionPolicies": {"spendingLimit": "Off"},
    }


def location() -> Json:
    """The one location there is."""
    name = paths.LOCATION
    return {
        "id": f"/subscriptions/{paths.SUBSCRIPTION_ID}/locations/{name}",
        "name": name,
        "type": "Region",
        "displayName": name,
        "regionalDisplayName": name,
        "metadata": {"regionType": "Logical", "regionCategory": "Other"},
    }


def provider(namespace: str) -> Json:
    """A resource provider; any api-version from 2019 on is taken, and one is named."""
    where = {"locations": [paths.LOCATION], "apiVersions": [paths.VERSION_SHOWN]}
    return {
        "id": f"/subscriptions/{paths.SUBSCRIPTION_ID}/providers/{namespace}",
        "namespace": namespace,
        "registrationPolicy": "RegistrationFree",
        "registrationState": "Registered",
        "resourceTypes": [{"resourceType": one, **where} for one in paths.PROVIDERS[namespace]],
    }


def group(name: str) -> Json:
    """A resource group."""
    return {
        "id": paths.group_id(name),
        "name": name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": paths.LOCATION,
        "properties": {"provisioningState": "Succeeded"},
    }


# ---- Whatever was said of it ----


def kept(fleet: Fleet, resource: str) -> Json:
    """What was said of it without effect."""
    row = fleet.kept.get(resource)
    found: Json = msgspec.json.decode(NOTHING if row is None else row.body)
    return found


def tags(row: Vm) -> Json:
    """Those of the fleet file, where two names may differ by case alone: Azure has them as one."""
    return merged({}, dict(row.tags))


def policy(scope: Scope | None) -> Json:
    """What of a scope is approved automatically, as Azure has it."""
    approved = () if scope is None else scope.automatically_approve
    return {
        name: {"automaticallyApprove": True}
        for event_type, name in POLICIES.items()
        if event_type in approved
    }


def _said(fleet: Fleet, resource: str, usual: Json, real: Json) -> Json:
    """What is usual, over it what was said, over it what is so whatever was said."""
    over = kept(fleet, resource)
    if "tags" in over:
        # All of them are said, or none: else those of the fleet file could not be taken away.
        usual = {**usual, "tags": {}}
    return {
        **merged(merged(usual, over), real),
        "etag": f'"{version(fleet, resource)}"',
    }


# ---- VMs ----


def _facts(fleet: Fleet, row: Vm) -> Facts:
    node = None if row.node is None else fleet.nodes[row.node]
    return facts_of(
        row,
        node,
        fleet.scopes[row.scope],
        subscription_id=paths.SUBSCRIPTION_ID,
        location=paths.LOCATION,
    )


def _machine(facts: Facts) -> Json:
    """What every VM of ours seems to be made of."""
    image = {"publisher": facts.publisher, "offer": facts.offer, "sku": facts.sku}
    return {
        "hardwareProfile": {"vmSize": facts.size},
        "storageProfile": {
            "imageReference": {**image, "version": facts.version},
            "osDisk": {
                "name": f"{facts.name}_OsDisk",
                "osType": facts.os_type,
                "createOption": "FromImage",
            },
            "dataDisks": [],
        },
        "osProfile": {"computerName": facts.computer_name, "adminUsername": "azureuser"},
    }


def _spot(row: Vm | ScaleSet, eviction_policy: str) -> Json:
    if row.priority is Priority.SPOT:
        return {"priority": "Spot", "evictionPolicy": eviction_policy}
    return {"priority": "Regular"}


def vm(fleet: Fleet, row: Vm, *, expanded: bool = False) -> Json:
    """A VM; `expanded` with its instance view. It shows no network interfaces."""
    facts = _facts(fleet, row)
    scope = fleet.scopes[row.scope]
    real: Json = {
        "vmId": facts.vm_id,
        "provisioningState": "Succeeded",
        **_spot(row, str(row.eviction_policy)),
    }
    if scope.kind is ScopeKind.AVAILABILITY_SET:
        what = paths.AVAILABILITY_SETS
        real["availabilitySet"] = {"id": paths.resource_id(scope.resource_group, what, scope.of)}
    elif scope.automatically_approve:
        real["scheduledEventsPolicy"] = policy(scope)
    if expanded:
        real["instanceView"] = instance_view(fleet, row)
    usual = {"tags": tags(row), "properties": _machine(facts)}
    named = {
        "id": facts.resource_id,
        "name": row.name,
        "type": "Microsoft.Compute/virtualMachines",
        "location": paths.LOCATION,
    }
    name = kept_name(ScopeKind.STANDALONE, row.name)
    return _said(fleet, name, usual, {**named, **_zones(row), "properties": real})


def _zones(row: Vm) -> Json:
    return {} if row.zone is None else {"zones": [row.zone]}


def instance_view(fleet: Fleet, row: Vm) -> Json:
    """How a VM is now."""
    code, words = _POWERS[row.power]
    facts = _facts(fleet, row)
    view: Json = {
        "computerName": facts.computer_name,
        "vmAgent": {"vmAgentVersion": "Unknown", "statuses": []},
        "statuses": [
            _status("ProvisioningState/succeeded", "Provisioning succeeded"),
            _status(code, words),
        ],
    }
    if row.update_domain is not None:
        view["platformUpdateDomain"] = row.update_domain
        view["platformFaultDomain"] = int(facts.fault_domain)
    waiting = maintenance(fleet, row.name)
    if waiting:
        begins = min(event.announced_at for event in waiting)
        ends = min(event.not_before for event in waiting)
        view["maintenanceRedeployStatus"] = {
            "isCustomerInitiatedMaintenanceAllowed": True,
            "preMaintenanceWindowStartTime": begins,
            "preMaintenanceWindowEndTime": ends,
            "maintenanceWindowStartTime": ends,
            "lastOperationResultCode": "None",
        }
    return view


def codes(row: Vm) -> tuple[str, str]:
    """How a VM is now, in codes alone."""
    return ("ProvisioningState/succeeded", _POWERS[row.power][0])


def _status(code: str, words: str) -> Json:
    return {"code": code, "level": "Info", "displayStatus": words}


def maintenance(fleet: Fleet, name: str) -> list[Event]:
    """What the platform has announced for a VM and nobody has approved."""
    events = (fleet.events[one] for one in fleet.events_in_scope.get(fleet.vms[name].scope, ()))
    return [
        event
        for event in events
        if event.source is EventSource.PLATFORM
        and event.status is EventStatus.SCHEDULED
        and event.approval is None
        and name in event.resources
    ]


# ---- Sets ----


def terminate_profile(row: ScaleSet) -> Json:
    """How long a scale set's instances know before they are deleted."""
    minutes = row.terminate_notice_minutes
    if minutes is None:
        return {"enable": False}
    return {"notBeforeTimeout": f"PT{minutes}M", "enable": True}


def scale_set(fleet: Fleet, row: ScaleSet) -> Json:
    """A scale set."""
    found = finding.instances(fleet, row)
    name = kept_name(ScopeKind.PLACEMENT_GROUP, row.name)
    profile = {
        **_spot(row, str(found[0].eviction_policy) if found else "Deallocate"),
        "scheduledEventsProfile": {"terminateNotificationProfile": terminate_profile(row)},
    }
    usual = {
        "sku": {"name": "Standard_D2s_v5", "tier": "Standard"},
        "tags": {},
        "properties": {
            "upgradePolicy": {"mode": "Manual"},
            "overprovision": False,
            "virtualMachineProfile": {"osProfile": {"computerNamePrefix": row.name}},
        },
    }
    real: Json = {
        "provisioningState": "Succeeded",
        "singlePlacementGroup": row.placement_groups == 1,
        "orchestrationMode": "Uniform",
        "virtualMachineProfile": profile,
    }
    approved = policy(fleet.scopes.get(f"{name}:0"))
    if approved:
        real["scheduledEventsPolicy"] = approved
    return _said(
        fleet,
        name,
        usual,
        {
            "id": paths.resource_id(row.resource_group, paths.SCALE_SETS, row.name),
            "name": row.name,
            "type": "Microsoft.Compute/virtualMachineScaleSets",
            "location": paths.LOCATION,
            "sku": {"capacity": len(staying(fleet, row))},
            "properties": real,
        },
    )


def scale_set_view(fleet: Fleet, row: ScaleSet) -> Json:
    """How the instances of a scale set are now."""
    counted = Counter(code for one in finding.instances(fleet, row) for code in codes(one))
    summary = [{"code": code, "count": count} for code, count in counted.items()]
    return {
        "virtualMachine": {"statusesSummary": summary},
        "statuses": [_status("ProvisioningState/succeeded", "Provisioning succeeded")],
    }


def instance(fleet: Fleet, row: ScaleSet, one: Vm, *, expanded: bool = False) -> Json:
    """An instance of a scale set."""
    facts = _facts(fleet, one)
    real: Json = {
        "vmId": facts.vm_id,
        "provisioningState": "Succeeded",
        "latestModelApplied": True,
    }
    if expanded:
        real["instanceView"] = instance_view(fleet, one)
    usual = {
        "sku": {"name": facts.size, "tier": "Standard"},
        "tags": tags(one),
        "properties": _machine(facts),
    }
    number = finding.instance_id(fleet, one)
    what = f"{paths.SCALE_SETS}/{row.name}/virtualMachines"
    named = {
        "id": paths.resource_id(row.resource_group, what, number),
        "name": one.name,
        "instanceId": number,
        "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        "location": paths.LOCATION,
    }
    name = kept_name(ScopeKind.STANDALONE, one.name)
    return _said(fleet, name, usual, {**named, **_zones(one), "properties": real})


def availability_set(fleet: Fleet, row: Scope) -> Json:
    """An availability set, with the ids of its VMs."""
    members = [fleet.vms[name] for name in fleet.vms_in_scope.get(row.name, ())]
    real: Json = {"virtualMachines": [{"id": _facts(fleet, one).resource_id} for one in members]}
    if row.automatically_approve:
        real["scheduledEventsPolicy"] = policy(row)
    counts = {
        "platformFaultDomainCount": FAULT_DOMAINS,
        "platformUpdateDomainCount": UPDATE_DOMAINS,
    }
    return _said(
        fleet,
        kept_name(ScopeKind.AVAILABILITY_SET, row.of),
        {"sku": {"name": "Aligned"}, "tags": {}, "properties": counts},
        {
            "id": paths.resource_id(row.resource_group, paths.AVAILABILITY_SETS, row.of),
            "name": row.of,
            "type": "Microsoft.Compute/availabilitySets",
            "location": paths.LOCATION,
            "properties": real,
        },
    )
