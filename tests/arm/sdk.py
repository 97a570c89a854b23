"""Azure's Python SDKs against a service, in an environment of their own: prints what they saw."""

import asyncio
import json
import os
import sys
from urllib.request import urlopen

from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential
from azure.identity.aio import DefaultAzureCredential as AsyncCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute.aio import ComputeManagementClient as AsyncCompute
from azure.mgmt.maintenance import MaintenanceManagementClient

URL = os.environ["ARM_URL"]
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
WHERE = {"base_url": URL, "credential_scopes": [f"{URL}/.default"]}


def became(*vms):
    """The newest event of each VM, when the wait for it is over: how it is, and who approved it."""
    with urlopen(f"{os.environ['CONTROL_URL']}/v1/events?limit=1000") as answer:  # noqa: S310
        events = sorted(json.load(answer)["items"], key=lambda one: one["announced_at"])
    newest = {vm: event for event in events for vm in event["resources"]}
    found = [newest[vm] for vm in vms]
    return [[one["type"], one["status"], [by["by"] for by in one["approvals"]]] for one in found]


def synchronous():
    """List, restart and wait; refused as Azure refuses."""
    client = ComputeManagementClient(DefaultAzureCredential(), SUBSCRIPTION, **WHERE)
    names = [vm.name for vm in client.virtual_machines.list_all()]
    poller = client.virtual_machines.begin_restart("sample", "web-0")
    poller.result()
    ended = became("web-0")
    client.virtual_machine_scale_sets.begin_restart("sample", "batch").result()
    ended += became("batch_0", "batch_1", "batch_2")
    try:
        client.virtual_machines.get("sample", "nobody")
    except HttpResponseError as error:
        return names, poller.status(), ended, error.error.code
    raise AssertionError("nobody is there")


def acknowledged():
    """Microsoft.Maintenance: nobody in a VM approves this one, so it waits for that."""
    compute = ComputeManagementClient(DefaultAzureCredential(), SUBSCRIPTION, **WHERE)
    poller = compute.virtual_machines.begin_redeploy("sample", "web-2")
    with urlopen(f"{os.environ['CONTROL_URL']}/v1/events?status=Scheduled") as answer:  # noqa: S310
        events = json.load(answer)["items"]
    (event,) = [one["id"] for one in events if one["resources"] == ["web-2"]]
    client = MaintenanceManagementClient(DefaultAzureCredential(), SUBSCRIPTION, **WHERE)
    said = client.scheduled_events.acknowledge("sample", "virtualMachines", "web-2", event)
    poller.result()
    return said.value, poller.status(), became("web-2")


async def asynchronous():
    """The same without blocking."""
    async with (
        AsyncCredential() as credential,
        AsyncCompute(credential, SUBSCRIPTION, **WHERE) as client,
    ):
        poller = await client.virtual_machines.begin_restart("sample", "web-1")
        await poller.result()
        return poller.status(), became("web-1")


json.dump([synchronous(), acknowledged(), asyncio.run(asynchronous())], sys.stdout)
