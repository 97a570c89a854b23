"""A worker that drains before its VM is touched.

It takes jobs; when a scheduled event names its VM it takes no more, finishes those it has, and then
gives the go-ahead. When the event is gone it takes jobs again.

    python draining_worker.py web-0        # asks at $FAIRNOTICE_METADATA_URL, or at Azure's address
"""

import json
import os
import sys
import time
from collections import deque
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

AZURE = "http://169.254.169.254"
PATH = "/metadata/scheduledevents?api-version=2020-07-01"
TIMEOUT_SECONDS = 5


class Worker:
    """Jobs, and an eye on what is going to happen to the VM."""

    def __init__(self, vm: str, metadata_url: str = AZURE) -> None:
        self.vm = vm
        self.jobs: deque[str] = deque()
        self.done: list[str] = []
        self.draining = False
        self._url = metadata_url + PATH

    def take(self, job: str) -> bool:
        """Take a job; False while draining."""
        if not self.draining:
            self.jobs.append(job)
        return not self.draining

    def work(self) -> None:
        """Do one job, if there is one."""
        if self.jobs:
            self.done.append(self.jobs.popleft())

    def look(self) -> None:
        """Look at the scheduled events, and act on those that name this VM."""
        try:
            events = self._ask()["Events"]
        except (OSError, HTTPException, ValueError, LookupError):
            return  # the service is away for a moment: what was known stays true
        mine = [event for event in events if self.vm in event["Resources"]]
        self.draining = bool(mine)
        for event in mine:
            if event["EventStatus"] == "Scheduled" and not self.jobs:
                self._ask({"StartRequests": [{"EventId": event["EventId"]}]})

    def _ask(self, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url, data, {"Metadata": "true"})
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read()
        # Descriptions were seen with raw control characters in them.
        document: dict[str, Any] = json.loads(text, strict=False) if body is None else {}
        return document


def main() -> None:
    """Work until the process is ended."""
    worker = Worker(sys.argv[1], os.environ.get("FAIRNOTICE_METADATA_URL", AZURE))
    while True:
        worker.work()
        worker.look()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
