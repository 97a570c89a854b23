"""The samples of Azure's documentation, retold, go through an event of a cloud.

The Python sample of the page as it is now, the one that stood there until 2020, the commands for a
shell, and what the C# clients send, byte by byte. Only the address is another.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from fairnotice.testing import Cloud

IN_CI = bool(os.environ.get("CI"))
PATIENCE_SECONDS = 20

# As the page has it since 2021: it looks for a new document, and approves what it likes of it.
PYTHON = """
import json, os, sys, time, urllib.request
from datetime import datetime

address = os.environ["ADDRESS"] + "/metadata/scheduledevents?api-version=2020-07-01"

def ask(body=None):
    request = urllib.request.Request(address, body, {"Metadata": "true"})
    with urllib.request.urlopen(request) as answer:
        return answer.status, answer.read()

def confirm(event_id):
    status, _ = ask(json.dumps({"StartRequests": [{"EventId": event_id}]}).encode())
    return status

last = None
while True:
    document = json.loads(ask()[1])
    if document["DocumentIncarnation"] != last:
        last = document["DocumentIncarnation"]
        for event in document["Events"]:
            if event["EventStatus"] == "Scheduled":
                at = datetime.strptime(event["NotBefore"], "%a, %d %b %Y %H:%M:%S GMT")
                platform = event["EventSource"] == "Platform"
                quick = 0 <= int(event["DurationInSeconds"]) < 9
                print("scheduled", event["EventType"], at.isoformat(), flush=True)
                if not (platform and quick):
                    print("confirmed", confirm(event["EventId"]), flush=True)
            else:
                print("started", event["EventType"], repr(event["NotBefore"]), flush=True)
        if not document["Events"]:
            print("nothing", flush=True)
    time.sleep(0.05)
"""
# As it was before: the host's own name is looked for, and NotBefore has its spaces replaced.
OLDER_PYTHON = """
import json, os, urllib.request

this_host = os.environ["VM"]
request = urllib.request.Request(
    os.environ["ADDRESS"] + "/metadata/scheduledevents?api-version=2017-08-01"
)
request.add_header("Metadata", "true")
data = json.loads(urllib.request.urlopen(request).read())
for evt in data["Events"]:
    notbefore = evt["NotBefore"].replace(" ", "_")
    if this_host in evt["Resources"]:
        print(evt["EventId"], evt["EventStatus"], evt["EventType"], evt["ResourceType"], notbefore)
"""
BASH = r"""
set -eu
here="$ADDRESS/metadata/scheduledevents?api-version=2020-07-01"
document=$(curl -s -H Metadata:true "$here")
echo "$document"
id=$(echo "$document" | sed 's/.*"EventId":"\([^"]*\)".*/\1/')
curl -s -o /dev/null -w '%{http_code}\n' -H Metadata:true -X POST \
    -d '{"StartRequests": [{"EventId": "'"$id"'"}]}' "$here"
"""


@pytest.fixture
def cloud():
    """A whole service with the sample fleet."""
    with Cloud() as it:
        yield it


def environment(cloud, vm="web-0"):
    """What a sample is started with: no proxy, and where the service is."""
    return {**cloud.environment(vm), "ADDRESS": cloud.url_for(vm), "VM": vm}


@contextmanager
def running(cloud, text):
    """A sample in Python, which asks until it is ended."""
    process = subprocess.Popen(  # noqa: S603 - our own text
        [sys.executable, "-c", text],
        env=environment(cloud),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield lambda: process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_python_sample(cloud):
    """It sees a restart, approves it, sees it started and gone."""
    with running(cloud, PYTHON) as line:
        assert line() == "nothing"
        event = cloud.vm("web-0").restart()
        assert line() == f"scheduled Reboot {event.not_before:%Y-%m-%dT%H:%M:%S}"
        assert line() == "confirmed 200"
        assert line() == "started Reboot ''"
        cloud.run_until(event, "Completed")
        assert line() == "nothing"
    assert event.approved_by == "web-0"


def test_the_python_sample_lets_a_short_freeze_come(cloud):
    """A live migration of five seconds is only told."""
    cloud.node("node-0").migrate()
    with running(cloud, PYTHON) as line:
        assert line().startswith("scheduled Freeze ")
        cloud.advance(minutes=15)
        assert line() == "started Freeze ''"
    assert cloud.approvals == []


def test_the_older_python_sample(cloud):
    """It finds its own name, and a NotBefore that has spaces."""
    event = cloud.vm("web-0").restart()
    done = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", OLDER_PYTHON],
        env=environment(cloud),
        capture_output=True,
        text=True,
        check=True,
    )
    at = f"{event.not_before:%a,_%d_%b_%Y_%H:%M:%S_GMT}"
    assert done.stdout == f"{event.id} Scheduled Reboot VirtualMachine {at}\n"


@pytest.mark.skipif(not IN_CI and not shutil.which("curl"), reason="needs curl")
def test_the_commands_for_a_shell(cloud):
    """Curl asks, and curl approves."""
    event = cloud.vm("web-0").restart()
    done = subprocess.run(  # noqa: S603 - our own text
        ["bash", "-c", BASH],  # noqa: S607 - of the machine
        env=environment(cloud),
        capture_output=True,
        text=True,
        check=True,
    )
    document, status = done.stdout.splitlines()
    assert json.loads(document)["Events"][0]["EventId"] == event.id
    assert (status, event.approved_by) == ("200", "web-0")


# ---- C# ----


class Wire:
    """A connection on which a test writes what a client does."""

    def __init__(self, place):
        self.socket = socket.create_connection(tuple(place), PATIENCE_SECONDS)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *lines, body=b""):
        self.socket.sendall("\r\n".join((*lines, "", "")).encode() + body)

    def answer(self):
        """Status and body of the next answer that is no hint."""
        status = int(self.file.readline().split()[1])
        length = 0
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        body = self.file.read(length)
        return self.answer() if status == 100 else (status, body)


@pytest.mark.parametrize("metadata", ["Metadata: True", "metadata: true"])
def test_what_the_csharp_client_of_the_discovery_sample_sends(cloud, metadata):
    """HttpClient: one connection, a path in camel case, the number of the document as text."""
    event = cloud.vm("web-0").restart()
    target = "/metadata/scheduledEvents?api-version=2017-08-01"
    place = cloud.place_for("web-0")
    with Wire(place) as wire:
        wire.send(f"GET {target} HTTP/1.1", metadata, f"Host: {place}", "Connection: Keep-Alive")
        status, body = wire.answer()
        document = json.loads(body)
        assert (status, document["Events"][0]["EventId"]) == (200, event.id)

        number = str(document["DocumentIncarnation"])
        asked = {"DocumentIncarnation": number, "StartRequests": [{"EventId": event.id}]}
        text = json.dumps(asked).encode()
        wire.send(
            f"POST {target} HTTP/1.1",
            metadata,
            "Content-Type: application/json; charset=utf-8",
            f"Host: {place}",
            f"Content-Length: {len(text)}",
            "Expect: 100-continue",
            body=text,
        )
        assert wire.answer() == (200, b"")
    assert event.approved_by == "web-0"


def test_what_the_first_csharp_client_sends(cloud):
    """WebClient, in 2017: no header when it approves, and names with an underscore."""
    event = cloud.vm("web-0").restart()
    target = "/metadata/scheduledevents?api-version=2017-03-01"
    place = cloud.place_for("web-0")
    with Wire(place) as wire:
        wire.send(f"GET {target} HTTP/1.1", "Metadata: true", f"Host: {place}")
        status, body = wire.answer()
        (shown,) = json.loads(body)["Events"]
        assert (status, shown["Resources"]) == (200, ["_web-0"])

        text = json.dumps({"StartRequests": [{"EventId": shown["EventId"]}]}).encode()
        lines = ["Content-Type: application/json", f"Content-Length: {len(text)}"]
        wire.send(f"POST {target} HTTP/1.1", f"Host: {place}", *lines, body=text)
        assert wire.answer()[0] == 200
    assert event.approved_by == "web-0"
