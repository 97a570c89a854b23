"""The tables of docs/compatibility.md: no address is without a line, and what they refuse is so."""

import os
import re
from pathlib import Path

import pytest

from fairnotice.arm.routes import ROUTES
from tests.arm.calling import BATCH, DB, GROUP, SUBSCRIPTION

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"


def listed(*, there):
    """Every method and address of the tables: of those that are here, or of those that are not."""
    page = PAGE.read_text("utf-8")
    section = page.partition("\n## Azure's own tools\n")[2].partition("\n## ")[0]
    row = re.compile(r"^\| `(\S+)` \| ([A-Z]+\b[^|]*) \| ([a-z ]+) \|", re.MULTILINE)
    for address, taken, how in row.findall(section):
        if (how != "not there") != there:
            continue
        words = re.findall(r"`(\w+)`", taken)
        for method in re.findall(r"\b[A-Z]{3,}\b", taken):
            yield from (
                (method, f"{address}/{word}" if word else address) for word in words or [""]
            )


def short(path):
    """As the table has it: what is before Microsoft.Compute is left out."""
    before, _, behind = path.partition("/providers/Microsoft.Compute/")
    return f"…/{behind}" if behind else before


def test_every_address_has_a_line():
    """Whoever adds one says there what it comes to; nor has it a line of one that is gone."""
    assert {(route.method, short(route.path)) for route in ROUTES} == set(listed(there=True))


def of_the_sdk():
    """Each method and address that azure-mgmt-compute has of VMs, sets and instances."""
    place = "lib/python3*/site-packages/azure/mgmt/compute/operations/_operations.py"
    written = next((ROOT / ".venv-sdks").glob(place), None)
    if written is None and "CI" not in os.environ:
        pytest.skip("Azure's SDK is not installed: run scripts/test-tools")
    asks = re.compile(
        r'^    _url = [(\s]*"(\S+)".+?^    return HttpRequest\(method="([A-Z]+)"',
        re.MULTILINE | re.DOTALL,
    )
    for path, method in asks.findall(written.read_text("utf-8")):
        if re.search("/(virtualMachines|virtualMachineScaleSets|availabilitySets)(/|$)", path):
            yield method, short(path)


def alike(requests):
    """Whatever they call what is in braces, and whatever the case."""
    return {(method, re.sub(r"{\w+}", "{}", address).lower()) for method, address in requests}


def test_what_the_sdk_asks_has_a_line():
    """Each request that it can send of these kinds: here, or listed as not there."""
    asked, here = alike(of_the_sdk()), alike(listed(there=True))
    assert len(asked) > 100
    assert asked - here == alike(listed(there=False))


NAMES = {"vm": "db", "scale_set": "batch", "instance": "0", "availability_set": "web"}


def test_what_is_listed_as_not_there_is_not(looking):
    """404 of all of it, which names what is missing."""
    for method, address in listed(there=False):
        behind = re.sub(r"{(\w+)}", lambda name: NAMES.get(name[1], "one"), address)
        # Lists by location are of a whole subscription.
        below = SUBSCRIPTION if "locations" in address else GROUP
        path = behind.replace("…", f"{below}/providers/Microsoft.Compute")
        body = None if method in ("GET", "DELETE") else {}
        said = looking.refused(404, "InvalidResourceType", method, path, body)
        assert "is not here" in said


@pytest.mark.parametrize(
    ("status", "code", "method", "path"),
    [
        (409, "OperationNotAllowed", "POST", f"{DB}/convertToManagedDisks"),
        (409, "OperationNotAllowed", "POST", f"{DB}/generalize"),
        (409, "OperationNotAllowed", "POST", f"{DB}/capture"),
        (409, "OperationNotAllowed", "POST", f"{BATCH}/setOrchestrationServiceState"),
        (404, "InvalidResourceType", "GET", f"{DB}/vmSizes"),
    ],
)
def test_what_the_table_says_is_refused(looking, status, code, method, path):
    """With Azure's codes."""
    looking.refused(status, code, method, path, {} if method != "GET" else None)


def test_why_no_service_is_suspended(looking):
    """Not for want of disks."""
    path = f"{BATCH}/setOrchestrationServiceState"
    body = {"serviceName": "AutomaticRepairs", "action": "Suspend"}
    said = looking.refused(409, "OperationNotAllowed", "POST", path, body)
    assert "not repaired automatically" in said
    path = path.replace("batch", "nobody")
    looking.refused(404, "ResourceNotFound", "POST", path, body)


def test_there_is_no_list_by_location(looking):
    """Neither of VMs nor of scale sets."""
    path = f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/local/virtualMachines"
    assert looking.get(path).status == 404


def test_every_answer_has_an_id_of_its_own(looking):
    """X-ms-request-id, also of a refusal; and back comes the x-ms-client-request-id of a tool."""
    asked = [looking.get(path, x_ms_client_request_id="7") for path in (DB, DB, f"{DB}/nothing")]
    assert len({answer.headers["x-ms-request-id"] for answer in asked}) == 3
    assert {answer.headers["x-ms-client-request-id"] for answer in asked} == {"7"}
