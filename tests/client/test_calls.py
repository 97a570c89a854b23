"""Asking once: what is sent, what each failure is, whose clock and whose proxy count."""

import json
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from fairnotice.client import Event
from fairnotice.errors import Away, BadAnswer, ClientError, RequestRefused, UsageError
from fairnotice.testing import ManualClock
from tests.client.bodies import GOOD, ID, OTHER, one
from tests.client.scripted import answer, header, serving

BODY = GOOD["2017-08-01 to 2019-01-01"][0]
FAILURES = {
    "400": (answer(b'{"error":"no such thing"}', 400), RequestRefused, "400: no such thing", None),
    "403": (answer(b"", 403), RequestRefused, "403.", None),
    "403 in words": (
        answer(b"denied:\n \x1b\xff", 403),
        RequestRefused,
        "403: denied: \ufffd",
        None,
    ),
    "404": (answer(b"<html>", 404), RequestRefused, "404: <html>", None),
    "408": (answer(b"", 408), Away, "408", None),
    "410": (answer(b"", 410), Away, "410", None),
    "429": (answer(b"", 429, b"Retry-After: 7"), Away, "429", 7.0),
    "429 until": (
        answer(b"", 429, b"Retry-After: Sun, 01 Mar 2026 12:00:09 GMT"),
        Away,
        "429",
        9.0,
    ),
    "429 whenever": (answer(b"", 429, b"Retry-After: soon"), Away, "429", None),
    "500": (answer(b'{"error":7}', 500), Away, "500", None),
    "503": (answer(b"", 503, b"Retry-After: 5"), Away, "503", 5.0),
    "302": (answer(b"", 302), BadAnswer, "302", None),
    "304 to a plain question": (answer(b"", 304), BadAnswer, "304", None),
    "no answer": (None, Away, "without an answer", None),
    "half an answer": (answer(BODY)[:-9], Away, "in the middle", None),
    "another protocol": (b"SSH-2.0-x\r\n", BadAnswer, "no HTTP", None),
}


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_has_its_type_and_sentence(kind, name):
    """Whose fault it was is in the type; how long to wait, where the service told it."""
    said, expected, sentence, seconds = FAILURES[name]
    with serving(lambda _: said, keeps=False) as service, pytest.raises(ClientError) as caught:
        kind(service.url).call("get")

    error = caught.value
    assert type(error) is expected
    assert sentence in str(error)
    assert getattr(error, "retry_after_seconds", None) == seconds
    if name[:3].isdigit() and expected is not BadAnswer:
        assert error.status == int(name[:3])


def test_an_answer_that_does_not_come(kind):
    """The time that was given is kept."""
    told = threading.Event()
    with (
        serving(lambda _: told.wait(10) and None) as service,
        pytest.raises(Away, match=r"No answer came within 0.2 s"),
    ):
        kind(service.url, timeout_seconds=0.2).call("get")
    told.set()


def test_whoever_is_patient_gets_it_later(kind):
    """An update of the service is under way at first; then there is a document."""
    said = [answer(b"", 410), answer(BODY)]
    with serving(lambda _: said.pop(0)) as service:
        assert kind(service.url).call("get", patience_seconds=20) == one()


def test_a_mistake_is_not_repeated(kind):
    """Whatever the patience: what is wrong with the request stays wrong."""
    with serving(answer(b"", 400)) as service:
        with pytest.raises(RequestRefused):
            kind(service.url).call("approve", ID, patience_seconds=20)
        assert len(service.asked) == 1


# ---- Approving ----


def test_an_approval_gets_through(kind, cloud):
    """One of several VMs' events, by itself and by its id, in a service of its own."""
    client = kind(cloud.url_for("web-0"))
    first, second = cloud.vm("web-0").restart(), cloud.vm("web-1").restart()
    (event, _) = client.call("get").events

    client.call("approve", event, second.id.lower())
    assert [(it.event, it.by) for it in cloud.approvals] == [
        (first.id, "web-0"),
        (second.id, "web-0"),
    ]
    client.call("approve", event)
    client.call("approve")
    with pytest.raises(RequestRefused, match="EventId not found"):
        client.call("approve", OTHER)


def test_an_approval_is_sent_again_until_it_was_taken(kind):
    """The connection is lost; the same once more is harmless."""
    said = [None, answer()]
    with serving(lambda _: said.pop(0)) as service:
        kind(service.url).call("approve", Event(ID, "Reboot", "Scheduled"))
    (_, body), (_, again) = (request.split(b"\r\n\r\n") for request in service.asked)
    assert json.loads(body) == json.loads(again) == {"StartRequests": [{"EventId": ID}]}


def test_many_approvals_go_in_several_requests(kind):
    """A service takes a hundred at a time."""
    with serving(answer()) as service:
        kind(service.url).call("approve", *(f"{number}" for number in range(201)))
    sizes = [request.count(b"EventId") for request in service.asked]
    assert sizes == [100, 100, 1]


# ---- The VM itself ----


def test_what_the_vm_is(kind, cloud):
    """Its name, as it stands in Resources: in a scale set that is not the host name."""
    assert kind(cloud.url_for("batch_1")).call("instance")["compute"]["name"] == "batch_1"


@pytest.mark.parametrize("hours", [-7, 0, 3])
def test_a_vm_whose_clock_is_wrong_knows_how_long_it_has(kind, cloud, hours):
    """NotBefore is 15 minutes away, whatever the VM believes; Date tells it to half a second."""
    cloud.vm("web-0").restart()
    own = ManualClock(cloud.now + timedelta(hours=hours))
    client = kind(cloud.url_for("web-0"), clock=own)
    (event,) = client.call("get").events

    assert client.client.seconds_until(event) == 15 * 60 - 0.5
    own.advance(minutes=16)
    assert client.client.seconds_until(event) == -60 - 0.5
    assert client.client.now() == cloud.now + timedelta(minutes=16, seconds=0.5)


def test_one_without_not_before(kind):
    """A Started event has no time left to be told."""
    started = Event(ID, "Reboot", "Started")
    assert kind("http://127.0.0.1:1").client.seconds_until(started) is None


def test_proxies_of_the_environment_are_not_used_unless_asked_for(kind, monkeypatch):
    """A VM behind a proxy still asks its own service; one that must may go through it."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(answer(BODY)) as service, serving(answer(BODY)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        kind(service.url).call("get")
        assert (len(service.asked), len(proxy.asked)) == (1, 0)

        kind(service.url, proxies=True).call("get")
        assert (len(service.asked), len(proxy.asked)) == (1, 1)
        first = proxy.asked[0].split(b"\r\n")[0].decode()
        assert first.startswith(f"GET {service.url}/metadata/scheduledevents?")
        assert header(proxy.asked[0], b"Host").decode() == service.url.removeprefix("http://")


def test_what_is_no_address_is_said_at_once(kind):
    """Not when it is asked for the first time."""
    with pytest.raises(UsageError):
        kind("169.254.169.254")


# ---- What it costs ----

LOADED = """
import sys
from fairnotice.client import ScheduledEvents, Change, Document
heavy = {"asyncio", "ssl", "email", "http.client", "urllib.request", "random", "logging"}
unix = {"fcntl", "pwd", "grp", "resource", "syslog", "termios"}
print(sorted((heavy | unix) & set(sys.modules) - before))
from fairnotice.client import AsyncScheduledEvents
"""


def test_what_is_imported():
    """Neither asyncio nor anything heavy, nor what only Unix has, for whoever wants no loop."""
    text = "import sys; before = set(sys.modules)\n" + LOADED
    line = [sys.executable, "-S", "-c", text]
    done = subprocess.run(  # noqa: S603 - our own line
        line, capture_output=True, text=True, check=True, env={"PYTHONPATH": "src"}
    )
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there():
    """The lazy module says so as any other does."""
    with pytest.raises(ImportError):
        from fairnotice.client import Nothing  # noqa: F401, PLC0415
