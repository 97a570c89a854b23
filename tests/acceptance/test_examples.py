"""The examples do what their pages say, as a person runs them."""

import json
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event

ROOT = Path(__file__).parents[2]
TARGET = "/vm/db/metadata/scheduledevents?api-version=2020-07-01"
PATIENCE_SECONDS = 15


@contextmanager
def started(*line):
    """The port that an example serves on, until it is ended as with Ctrl-C."""
    process = subprocess.Popen(  # noqa: S603 - our own line
        [sys.executable, *line, "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline()
        yield int(said.partition("127.0.0.1:")[2].partition("/")[0])
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def ask(port, method="GET", body=None):
    """The document, or the status of an approval."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.request(method, TARGET, body=body, headers={"Metadata": "true"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def test_the_endpoint_announces_and_is_approved():
    """Ask as db, and a few seconds later a reboot is announced; approved, it starts."""
    with started("examples/endpoint.py") as port:
        for _ in range(PATIENCE_SECONDS * 5):
            status, document = ask(port)
            assert status == 200
            if document["Events"]:
                break
            Event().wait(0.2)
        (event,) = document["Events"]
        assert event["EventStatus"] == "Scheduled"
        body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
        assert ask(port, "POST", body)[0] == 200
        _, document = ask(port)
        assert document["Events"][0]["EventStatus"] == "Started"
