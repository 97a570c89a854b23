"""The JSON of both schemas, as it stands in tests/deliveries/golden.json; and ids, signatures."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.deliveries import shapes
from fairnotice.model import Event, Scope
from fairnotice.stores.webhooks import Delivery, Webhook
from fairnotice.words import EventSchema, EventSource, EventStatus, EventType, ScopeKind
from tests.house import ROOT

AT = datetime(2026, 5, 1, 12, 0, 0, 958410, UTC)
GOLDEN = json.loads((ROOT / "tests" / "deliveries" / "golden.json").read_text("utf-8"))
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
SCOPES = {
    "vm": Scope("vm:db", ScopeKind.STANDALONE, "db", resource_group="sample"),
    "set": Scope("availability-set:web", ScopeKind.AVAILABILITY_SET, "web"),
    "scale-set": Scope("scale-set:batch:0", ScopeKind.PLACEMENT_GROUP, "batch"),
    "service": Scope("cloud-service:shop", ScopeKind.CLOUD_SERVICE, "shop"),
}


def event(**more):
    """A live migration of a VM."""
    given = {
        "id": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
        "operation": "o",
        "scope": "vm:db",
        "type": EventType.FREEZE,
        "source": EventSource.PLATFORM,
        "status": EventStatus.SCHEDULED,
        "resources": ("db", "ü\\"),
        "revision": 7,
        "announced_at": AT,
        "not_before": AT.replace(microsecond=0) + timedelta(minutes=15),
        "notice_seconds": 900.0,
        "description": 'Virtual machine is being "paused" ☃.',
        "duration_seconds": 5,
    }
    return Event(**{**given, **more})


def webhook(schema, **more):
    """One of this schema."""
    given = {"id": "1", "name": "ops", "url": "https://example.org", "schema": schema}
    return Webhook(created_at=AT, created_by="olga", **{**given, **more})


def delivery(row, scope):
    """What is told of an event in a scope."""
    return Delivery(
        id=shapes.delivery_id(row),
        event=row.id,
        status=row.status,
        queued_at=AT,
        next_at=AT,
        content=shapes.content(row, scope, AT, SUBSCRIPTION, "local"),
    )


@pytest.mark.parametrize("schema", EventSchema)
@pytest.mark.parametrize("status", EventStatus)
def test_every_status_in_both_schemas(schema, status):
    """As it was agreed on: what is told outside is read by programs."""
    one = delivery(event(status=status), SCOPES["vm"])
    sent = json.loads(shapes.body(webhook(schema), one))
    assert sent == GOLDEN[f"{schema} {status}"]


def test_the_resource_is_that_of_the_scope():
    """A set, a scale set and a cloud service are named as wholes, as Azure does."""
    for name, collection in (
        ("vm", "resourceGroups/sample/providers/Microsoft.Compute/virtualMachines/db"),
        ("set", "resourceGroups/default/providers/Microsoft.Compute/availabilitySets/web"),
        ("scale-set", "Microsoft.Compute/virtualMachineScaleSets/batch"),
        ("service", "Microsoft.Compute/cloudServices/shop"),
    ):
        told = json.loads(delivery(event(), SCOPES[name]).content)
        assert (
            f"{collection}/providers/microsoft.maintenance/scheduledevents/c7061"
            in (told["subject"])
        )


def test_an_id_says_what_is_told_and_not_when():
    """Told twice it has the same id; whatever changes for the receiver gives it another."""
    same = shapes.delivery_id(event())
    assert shapes.delivery_id(event(seen=(), revision=99)) == same
    others = {
        shapes.delivery_id(event(status=EventStatus.STARTED)),
        shapes.delivery_id(event(resources=("db",))),
        shapes.delivery_id(event(not_before=AT + timedelta(days=1))),
        shapes.delivery_id(event(id="another")),
    }
    assert len(others | {same}) == 5


def test_a_lone_surrogate_is_still_json():
    """A name that is no Unicode goes out as an escape, and not as a fault of ours."""
    one = delivery(event(description="\ud800"), SCOPES["vm"])
    assert b"\\ud800" in shapes.body(webhook(EventSchema.EVENTGRID), one)


def test_a_signature_is_that_of_the_standard():
    """The example of the specification of Standard Webhooks."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the example's
    one = delivery(event(), SCOPES["vm"])
    one = Delivery(
        **{
            **{n: getattr(one, n) for n in one.__struct_fields__},
            "id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        }
    )
    headers = dict(
        shapes.headers(
            webhook(EventSchema.CLOUDEVENTS, secret=secret),
            one,
            b'{"test": 2432232314}',
            datetime.fromtimestamp(1614265330, UTC),
        )
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
