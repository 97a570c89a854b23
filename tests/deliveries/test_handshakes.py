"""Nobody is told anything who has not agreed, and nobody who may not be."""

import asyncio
import json
import ssl
import urllib.error
import urllib.request

import pytest

from fairnotice.deliveries.handshakes import agreed
from fairnotice.deliveries.sending import Answer, Sender
from fairnotice.errors import UsageError
from fairnotice.testing.manual_clock import DEFAULT_START as START
from fairnotice.words import EventSchema
from tests.cli.serves import certificate
from tests.control.calling import restarted, serving
from tests.deliveries.receivers import receiving
from tests.deliveries.test_retries import webhook
from tests.waiting import until


@pytest.fixture(scope="module")
def calm():
    """A service in which no webhook is ever made."""
    with serving() as one:
        yield one


def refused(served, url, **more):
    """What is said to whoever wants this webhook; nothing is kept."""
    answer = served.post("/v1/webhooks", {"name": "ops", "url": url, **more})
    assert answer.status == 422, answer
    assert served.get("/v1/webhooks").json["items"] == []
    return answer.json["detail"]


def test_cloudevents_asks_by_options(receiver, hook):
    """With the origin in a header, as the specification of CloudEvents for webhooks has it."""
    hook(receiver)
    (asked,) = receiver.tried
    assert asked.method == "OPTIONS"
    assert asked.headers["webhook-request-origin"] == "fairnotice"


def test_eventgrid_asks_by_an_event(receiver, hook):
    """With a code that is to be repeated, and another way to say yes."""
    hook(receiver, schema="eventgrid")
    (asked,) = receiver.tried
    assert asked.headers["aeg-event-type"] == "SubscriptionValidation"
    assert asked.headers["aeg-subscription-name"] == "OPS"
    (event,) = json.loads(asked.body)
    assert event["eventType"] == "Microsoft.EventGrid.SubscriptionValidationEvent"
    assert len(event["data"]["validationCode"]) == 43
    assert event["data"]["validationUrl"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("origin", ["*", "Fairnotice", "eventgrid.azure.net"])
def test_cloudevents_takes_the_origin_of_event_grid_for_its_own(receiver, hook, origin):
    """What a receiver answers that was made for Azure and looks at no request."""
    receiver.agrees = lambda _: (200, {"WebHook-Allowed-Origin": origin}, b"")
    assert hook(receiver)["webhook"]["state"] == "delivering"


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b""),
        (200, {"WebHook-Allowed-Origin": "somebody.example.org"}, b""),
        (405, {"WebHook-Allowed-Origin": "*"}, b""),
        (302, {"Location": "http://127.0.0.1:1/"}, b""),
    ],
)
def test_cloudevents_needs_a_proper_yes(calm, receiver, answer):
    """Silence, another origin, an error and a redirect are none; what is needed is said."""
    receiver.agrees = lambda _: answer
    said = refused(calm, receiver.url)
    assert "WebHook-Allowed-Origin: fairnotice" in said


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b'{"validationResponse": "another"}'),
        (200, {}, b"yes, please"),
        (200, {}, b"\xff\xfe[1"),
        (400, {}, b""),
        (500, {}, b""),
    ],
)
def test_eventgrid_needs_the_code(calm, receiver, answer):
    """Another code, something else and an error are no yes."""
    receiver.agrees = lambda _: answer
    said = refused(calm, receiver.url, schema="eventgrid")
    assert "validationResponse" in said


def test_who_was_given_no_validation_url_has_to_agree_at_once():
    """Where this service does not know its own address he could never open one."""

    class Silent:
        async def ask(self, *_):
            return Answer(200, {}, b"")

    hook = webhook(schema=EventSchema.EVENTGRID)

    async def agrees(**more):
        return await agreed(Silent(), hook, at=START, subscription="s", **more)

    with pytest.raises(UsageError, match="does not agree to be told"):
        asyncio.run(agrees())
    assert not asyncio.run(agrees(validation_url="https://localhost/"))


def test_whoever_opens_the_validation_url_agrees_later(served, receiver, hook):
    """Until then nothing is told; then also what has happened since it was made."""
    receiver.agrees = lambda _: (200, {}, b"")
    made = hook(receiver, schema="eventgrid")
    assert made["webhook"]["state"] == "awaiting validation"
    assert made["warnings"] == ["Nothing is told before its validationUrl was opened."]
    event = restarted(served)
    assert receiver.nothing_within(0.3)
    assert served.get("/v1/webhooks/ops").json["waiting"] == 1
    url = receiver.tried[0].event["data"]["validationUrl"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url[:-1] + ("A" if url[-1] != "A" else "B"))  # noqa: S310 - our own service
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own service
        assert json.load(answer) == {"validated": True}
    assert receiver.next().properties["EventId"] == event.lower()
    until(lambda: served.get("/v1/webhooks/ops").json["waiting"] == 0)
    assert served.get("/v1/webhooks/ops").json["state"] == "delivering"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        # Once is enough.
        urllib.request.urlopen(url)  # noqa: S310 - our own service


def test_nobody_is_sent_a_test_who_has_yet_to_agree(served, receiver, hook):
    """A test tells him something too; he may not be the one whom the admin meant."""
    receiver.agrees = lambda _: (200, {}, b"")
    hook(receiver, schema="eventgrid")
    refused = served.post("/v1/webhooks/ops/test")
    assert (refused.status, "awaits validation" in refused.json["detail"]) == (422, True)
    assert len(receiver.tried) == 1
    with urllib.request.urlopen(receiver.tried[0].event["data"]["validationUrl"]):  # noqa: S310 - our own service
        pass
    assert served.post("/v1/webhooks/ops/test").json["taken"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.1/in", "could be read on the way"),
        ("ftp://127.0.0.1/in", "no https:// URL"),
        ("https:///in", "no https:// URL"),
        ("https://user:secret@127.0.0.1/", "neither a user"),
        ("https://127.0.0.1/#x", "nor a fragment"),
        ("https://127.0.0.1/ä", "ASCII"),
        ("https://127.0.0.1:x/", "no URL"),
        ("https://127.0.0.1:0/", "port 0"),
        ("https://127.0.0.1/a\r\nHost: b", "ASCII"),
        ("https://a..b/", "names no host"),
        ("https://.example.org/", "names no host"),
        (f"https://{'a' * 64}.example.org/", "names no host"),
        ("https://169.254.169.254/metadata", "no webhook may have"),
        ("https://[fe80::1]/", "no webhook may have"),
        ("https://[2002:a9fe:a9fe::1]/", "no webhook may have"),
        ("https://168.63.129.16/", "no webhook may have"),
        ("https://[fd00:ec2::254]/", "no webhook may have"),
        ("https://[::ffff:169.254.169.254]/", "no webhook may have"),
        ("https://0.0.0.0/", "no webhook may have"),
        ("https://224.0.0.1/", "no webhook may have"),
        ("http://127.0.0.1:1/", "nobody listens there"),
    ],
)
def test_where_nobody_is_told_anything(calm, url, why):
    """Neither in clear text to other machines, nor where clouds keep their credentials."""
    assert why in refused(calm, url)


def test_plain_http_to_another_machine_has_to_be_allowed(calm):
    """Then it is tried, and here nobody is there."""
    said = refused(calm, "http://169.254.1.1/in", allow_http=True)
    assert "no webhook may have" in said


def test_what_does_not_fit_is_refused(served, receiver, hook):
    """A name that is none, a filter for nothing, numbers out of their range, a name twice."""
    for more in (
        {"name": "no name"},
        {"statuses": ["Over"]},
        {"scopes": ["vm:nobody"]},
        {"attempts_max": 0},
        {"attempts_max": 31},
        {"keep_minutes": 1_441},
        {"schema": "other"},
    ):
        answer = served.post("/v1/webhooks", {"name": "ops", "url": receiver.url, **more})
        assert answer.status in (404, 422), more
    assert receiver.tried == []
    # In words, and not as a program says it.
    for more, field, said in (
        ({"name": "no name"}, "name", "It must be up to 64 letters, digits and . _ -, of which"),
        ({"attempts_max": 31}, "attempts_max", "It must be 30 or less."),
        ({"keep_minutes": 0}, "keep_minutes", "It must be 1 or more."),
    ):
        problem = served.post("/v1/webhooks", {"name": "ops", "url": receiver.url, **more}).json
        assert problem["field"] == field
        assert problem["detail"].startswith(said)
    hook(receiver)
    with receiving() as other:
        again = served.post("/v1/webhooks", {"name": "OPS", "url": other.url})
        assert again.status == 422
        assert other.tried == []


def test_a_certificate_has_to_be_vouched_for(served, tmp_path):
    """One that nobody vouches for is refused; with an authority of one's own it is taken."""
    cert, key = certificate(tmp_path)
    with receiving(tls=(cert, key)) as secure:
        assert "certificate verify failed" in refused(served, secure.url)
        served.run.service.webhooks.sender = Sender(ssl.create_default_context(cafile=cert))
        answer = served.post("/v1/webhooks", {"name": "ops", "url": secure.url})
        assert answer.status == 200, answer
        restarted(served)
        assert secure.next().properties["EventStatus"] == "Scheduled"
