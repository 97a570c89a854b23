"""A client of Scheduled Events that does everything right, to be copied. Standard library only.

    python3 client.py                                  # in a VM, on Azure or on fairnotice
    python3 client.py --url http://127.0.0.1:8169/vm/web-0 --interval 1

It asks once a second. When something is going to happen to this VM it prepares, here by printing a
line, then approves, so that it happens now and not at a bad moment; when that is over it says so.
`fairnotice conform -- python3 client.py` proves the rest: whatever the endpoint does, it goes on.
"""

import argparse
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
# After each failure in a row it pauses twice as long, so many times.
DOUBLINGS_MAX = 3

# Everything that can go wrong on the way: no connection, half an answer, no JSON, another shape.
TROUBLE = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError)
# The metadata service is never behind a proxy, whatever the environment says.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Client:
    """Asks, prepares, approves; `timeout` is how long it waits for an answer."""

    def __init__(self, url: str, interval: float, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.interval = interval
        self.timeout = timeout
        self.name = ""
        # The events of this VM that are shown, and the ids of those that it has approved.
        self.known: dict[str, dict[str, Any]] = {}
        self.approved: set[str] = set()
        self.failures = 0

    def run(self) -> None:
        """Ask for ever."""
        while True:
            try:
                self.poll()
                self.failures, pause = 0, self.interval
            except TROUBLE as error:
                self.failures += 1
                pause = self.pause_after(error)
                print(f"{type(error).__name__}: {error}; again in {pause:g} s", flush=True)
            time.sleep(pause)

    def pause_after(self, error: BaseException) -> float:
        """Less often each time, and not before the service wants to be asked again."""
        pause = self.interval * (1 << min(self.failures, DOUBLINGS_MAX))
        if isinstance(error, urllib.error.HTTPError):
            wanted: str = error.headers.get("Retry-After", "")
            pause = max(pause, float(wanted) if wanted.isdecimal() else 0.0)
        return pause

    def poll(self) -> None:
        """Ask once, and do what is to be done."""
        # The name that stands in Resources is not always the host name: in a scale set it is not.
        self.name = self.name or self.ask(NAME).decode()
        self.take(self.read(self.ask(EVENTS)))

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        """What the service answers; a POST where there is a body."""
        headers = {"Metadata": "true"}
        request = urllib.request.Request(self.url + path, body, headers)
        with DIRECT.open(request, timeout=self.timeout) as answer:
            return bytes(answer.read())

    def read(self, body: bytes) -> dict[str, dict[str, Any]]:
        """The events of this VM by their ids. Incarnations are not compared: they may restart."""
        if not body:
            # Seen on Azure where nothing is announced. What was known stays known.
            return self.known
        # Not strict: a Description is free text, and may hold raw control characters.
        events = json.loads(body, strict=False)["Events"]
        return {event["EventId"]: event for event in events if self.is_mine(event)}

    def is_mine(self, event: dict[str, Any]) -> bool:
        """Every VM of the scope is shown the event; whom it is about stands in Resources."""
        return self.name in event["Resources"]

    def take(self, shown: dict[str, dict[str, Any]]) -> None:
        """Say what is gone, prepare for what is new, approve what is only announced."""
        for gone in self.known.keys() - shown.keys():
            print(f"over: {self.known[gone]['EventType']} {gone}", flush=True)
        self.known = shown
        # Only what is still Scheduled: a Started event needs no approval, its NotBefore is "".
        waiting = [name for name, event in shown.items() if event["EventStatus"] == "Scheduled"]
        new = [name for name in waiting if name not in self.approved]
        for name in new:
            self.prepare(shown[name])
        if new:
            self.approve(new)

    def prepare(self, event: dict[str, Any]) -> None:
        """Yours: drain, hand over, save. It must be quick, or ask on in another thread."""
        print(f"preparing for {event['EventType']} {event['EventId']}", flush=True)

    def approve(self, names: list[str]) -> None:
        """Let them begin. They count as approved only when the service has said so."""
        wanted = {"StartRequests": [{"EventId": name} for name in names]}
        self.ask(EVENTS, json.dumps(wanted).encode())
        self.approved.update(names)


def main(kind: type[Client] = Client) -> None:
    """Read the command line, and ask until somebody ends it."""
    url = os.environ.get("FAIRNOTICE_METADATA_URL", "http://169.254.169.254")
    parser = argparse.ArgumentParser(description="Approve every event of this VM.")
    parser.add_argument("--url", default=url, help=f"the metadata service ({url})")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between polls (1)")
    parser.add_argument("--timeout", type=float, default=10.0, help="for an answer, in s (10)")
    options = parser.parse_args()
    kind(options.url, options.interval, options.timeout).run()


if __name__ == "__main__":
    main()
