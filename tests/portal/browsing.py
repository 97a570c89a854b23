"""What tests of the portal share: a service with its pages, and a real browser to look at them."""

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fairnotice.engine import DEV
from fairnotice.portal.portal import portal
from tests.control.calling import PATIENCE_SECONDS, serving

CHROMIUM = shutil.which("chromium")
MODULES = Path(__file__).parent / "node_modules"
AXE = MODULES / "axe-core" / "axe.min.js"
TSC = MODULES / "typescript" / "bin" / "tsc"
needs_browser = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ,
    reason="chromium is not installed: scripts/test-tools",
)
needs_npm = pytest.mark.skipif(
    not (AXE.exists() and TSC.exists()) and "CI" not in os.environ,
    reason="the packages of tests/portal/package.json are not installed: scripts/test-tools",
)

# What is over stays in view for a moment: a person, and a test, sees that it was Started.
TIMING = replace(DEV, settle_seconds=2)
HOSTILE = {
    "script": '<script>document.title="hit"',
    "attribute": '"><img src=x onerror=\'document.title="hit"\'>',
    "style": "' style='display:none' {{ 7*7 }} ${7*7}",
    "long": "x" * 200,
    "right to left": "\u05d0\u05d1\u05d2\u0639\u0631\u0628\u064a-7",
}


@contextmanager
def served(**more):
    """A service with the sample fleet, all of whose scopes listen, and its portal."""
    with serving(fronts=portal, timing=TIMING, **more) as there:
        yield there


def address(there, path="/"):
    """Where a page is."""
    return f"http://{there.run.control}{path}"


def approve(there, vm, event):
    """The VM gives the go-ahead, as its agent would."""
    connection = HTTPConnection(*there.run.metadata, timeout=PATIENCE_SECONDS)
    path = f"/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
    body = json.dumps({"StartRequests": [{"EventId": event}]})
    connection.request("POST", path, body, {"Metadata": "true"})
    assert connection.getresponse().status == 200
    connection.close()


def hostile_fleet():
    """Names that mean harm, wherever a name may be."""
    names = list(HOSTILE.values())
    return {
        "node": [{"name": name} for name in names],
        "availability_set": [{"name": name} for name in names],
        "vm": [
            {
                "name": name,
                "node": name,
                "availability_set": name,
                "tags": {name: name},
                "resource_group": name,
            }
            for name in names
        ],
    }
