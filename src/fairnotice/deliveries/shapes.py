"""An event as Azure Event Grid tells it, in both of its schemas. Pure: no clock, no network.

The page of Azure is "Scheduled Events in Event Grid" (2026-05); ids in small letters, the
empty NotBefore once it has started and operationalInfo are as captures of deliveries have them.
"""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from fairnotice.model import Event, Scope
from fairnotice.stores.webhooks import Delivery, Webhook
from fairnotice.wire.document import rfc1123
from fairnotice.words import EventSchema, EventStatus, ScopeKind

EVENT_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
VALIDATION_TYPE = "Microsoft.EventGrid.SubscriptionValidationEvent"
# As the page of Azure has them.
API_VERSION = "2024-07-01"
DATA_VERSION = "3.0"
METADATA_VERSION = "1"
VALIDATION_DATA_VERSION = "2"

JSON = "application/json; charset=utf-8"
CLOUDEVENTS_JSON = "application/cloudevents+json; charset=utf-8"

_COLLECTIONS = {
    ScopeKind.STANDALONE: "virtualMachines",
    ScopeKind.AVAILABILITY_SET: "availabilitySets",
    ScopeKind.PLACEMENT_GROUP: "virtualMachineScaleSets",
    ScopeKind.CLOUD_SERVICE: "cloudServices",
}

Headers = list[tuple[str, str]]


def iso(at: datetime) -> str:
    """An instant as Event Grid writes it, to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def content(event: Event, scope: Scope, at: datetime, subscription: str, location: str) -> str:
    """What is said of an event at this instant, as JSON that both schemas are made from."""
    id_ = event.id.lower()
    resource = (
        f"/subscriptions/{subscription}/resourceGroups/{scope.resource_group}/providers"
        f"/Microsoft.Compute/{_COLLECTIONS[scope.kind]}/{scope.of}"
        f"/providers/microsoft.maintenance/scheduledevents/{id_}"
    )
    told = {
        "topic": f"/subscriptions/{subscription}",
        "subject": resource,
        "time": iso(at),
        "data": {
            "resourceInfo": {
                "id": resource,
                "name": id_,
                "type": "microsoft.maintenance/scheduledevents",
                "location": location,
                "properties": {
                    "EventId": id_,
                    "EventStatus": event.status,
                    "EventType": event.type,
                    "ResourceType": "VirtualMachine",
                    "Resources": list(event.resources),
                    "NotBefore": rfc1123(event.not_before) if event.scheduled else "",
                    "Description": event.description,
                    "EventSource": event.source,
                    "DurationInSeconds": event.duration_seconds,
                },
            },
            "operationalInfo": {"resourceEventTime": iso(at)},
            "apiVersion": API_VERSION,
        },
    }
    # In ASCII: a store takes it, whatever somebody has put into a name.
    return json.dumps(told)


def delivery_id(event: Event) -> str:
    """The id of what is told of an event as it is now: the same however often it is told.

    From what is told and not from a revision, so that it is the same when the journal is forgotten
    and the state is told instead. It does not repeat by chance: statuses go one way, NotBefore only
    grows, and Resources only leave.
    """
    shown = (event.id, event.status, rfc1123(event.not_before), *event.resources)
    return str(uuid5(NAMESPACE_URL, json.dumps(["fairnotice:delivery", *shown])))


def body(webhook: Webhook, delivery: Delivery) -> bytes:
    """The body of the request."""
    told = json.loads(delivery.content)
    if webhook.schema is EventSchema.CLOUDEVENTS:
        return _bytes(_cloud_event(delivery, told))
    return _bytes([_grid_event(delivery.id, EVENT_TYPE, told, DATA_VERSION)])


def _cloud_event(delivery: Delivery, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": delivery.id,
        "source": told["topic"],
        "type": EVENT_TYPE,
        "subject": told["subject"],
        "time": told["time"],
        "datacontenttype": "application/json",
        "data": told["data"],
    }


def _grid_event(id_: str, type_: str, told: dict[str, Any], version: str) -> dict[str, Any]:
    return {
        "id": id_,
        "topic": told["topic"],
        "subject": told["subject"],
        "eventType": type_,
        "eventTime": told["time"],
        "data": told["data"],
        "dataVersion": version,
        "metadataVersion": METADATA_VERSION,
    }


def headers(webhook: Webhook, delivery: Delivery, sent: bytes, at: datetime) -> Headers:
    """What stands above the body of a delivery."""
    if webhook.schema is EventSchema.CLOUDEVENTS:
        found = [("Content-Type", CLOUDEVENTS_JSON)]
    else:
        found = [
            ("Content-Type", JSON),
            ("aeg-event-type", "Notification"),
            ("aeg-subscription-name", webhook.name.upper()),
            ("aeg-delivery-count", str(delivery.attempts)),
            ("aeg-data-version", DATA_VERSION),
            ("aeg-metadata-version", METADATA_VERSION),
        ]
    return [*found, *_signature(webhook.secret, delivery.id, sent, at)]


def _signature(secret: str, id_: str, sent: bytes, at: datetime) -> Headers:
    """By the rules of standardwebhooks.com, for which there are libraries; none without secret."""
    if not secret:
        return []
    timestamp = str(int(at.timestamp()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join((id_.encode(), timestamp.encode(), sent))
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return [
        ("webhook-id", id_),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", f"v1,{digest}"),
    ]


def validation(
    webhook: Webhook, id_: str, at: datetime, subscription: str, url: str
) -> tuple[bytes, Headers]:
    """What asks a receiver of Event Grid's own schema whether he wants to be told."""
    data = {"validationCode": webhook.validation_code}
    if url:
        data["validationUrl"] = url
    topic = f"/subscriptions/{subscription}"
    told = {"topic": topic, "subject": "", "time": iso(at), "data": data}
    event = _grid_event(id_, VALIDATION_TYPE, told, VALIDATION_DATA_VERSION)
    above = [
        ("Content-Type", JSON),
        ("aeg-event-type", "SubscriptionValidation"),
        ("aeg-subscription-name", webhook.name.upper()),
        ("aeg-delivery-count", "0"),
        ("aeg-data-version", VALIDATION_DATA_VERSION),
        ("aeg-metadata-version", METADATA_VERSION),
    ]
    return _bytes([event]), above


def wants(webhook: Webhook, event: Event, scope: Scope) -> bool:
    """Whether a webhook is told of this event as it is now."""
    return (
        (not webhook.statuses or event.status in webhook.statuses)
        and (not webhook.types or event.type in webhook.types)
        and _is_about(webhook, event, scope)
    )


def _is_about(webhook: Webhook, event: Event, scope: Scope) -> bool:
    if not (webhook.scopes or webhook.resource_groups):
        return True
    # Resource groups have no case in Azure.
    groups = {group.lower() for group in webhook.resource_groups}
    return event.scope in webhook.scopes or scope.resource_group.lower() in groups


def instant_of(event: Event) -> datetime:
    """When an event came to be as it is, as far as its row tells."""
    if event.status is EventStatus.SCHEDULED:
        return event.announced_at
    if event.status is EventStatus.STARTED:
        return event.started_at or event.announced_at
    return event.gone_at or event.announced_at


def _bytes(told: object) -> bytes:
    # Half of a surrogate pair is no UTF-8; written as \udXXX it is still JSON.
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")
