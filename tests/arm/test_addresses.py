"""The table of docs/compatibility.md: no address is without a line, and what it refuses is so."""

import re
from pathlib import Path

import pytest

from fairnotice.arm.routes import ROUTES
from tests.arm.calling import BATCH, DB, SUBSCRIPTION

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def listed():
    """Every method and address of the table."""
    page = PAGE.read_text("utf-8")
    section = page.partition("\n## Azure's own tools\n")[2].partition("\n## ")[0]
    for address, taken in re.findall(r"^\| `(\S+)` \| ([A-Z]+\b[^|]*) \|", section, re.MULTILINE):
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
    assert {(route.method, short(route.path)) for route in ROUTES} == set(listed())


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
