"""What a client does, in a few lines: ask for the document, approve."""

import json
from typing import Any
from urllib.request import Request, urlopen

EVENTS = "/metadata/scheduledevents?api-version="


def get(url: str, version: str = "2020-07-01") -> tuple[dict[str, Any], str]:
    """The document that is shown there, and the Date of the answer."""
    request = Request(url + EVENTS + version, headers={"Metadata": "true"})  # noqa: S310
    with urlopen(request, timeout=20) as answer:  # noqa: S310 - our own endpoint
        return json.load(answer), answer.headers["Date"]


def approve(url: str, event: str) -> None:
    """Give the go-ahead."""
    body = json.dumps({"StartRequests": [{"EventId": event}]}).encode()
    request = Request(url + EVENTS + "2020-07-01", body, {"Metadata": "true"})  # noqa: S310
    with urlopen(request, timeout=20):  # noqa: S310
        pass
