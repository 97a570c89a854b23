"""The operator's commands of the game day do what the page says, each in a service of its own."""

import json
import re
from urllib.request import Request, urlopen

import pytest

from fairnotice.control.scenarios import SCENARIOS
from tests.cli.typed import served, typed
from tests.house import ROOT

# The VMs as which the owners run their software.
PLAYED = ("web-0", "web-1", "spot_0")
PAGE = (ROOT / "docs" / "guides" / "game-day.md").read_text("utf-8")
# What each row of a table tells the operator to type.
ROWS = [
    re.findall(r"`fairnotice ([^`]+)`", row.split("|")[1])
    for row in PAGE.splitlines()
    if row.startswith("| `fairnotice ")
]
# Those that end, of the blocks; faults are proven where they are described.
LINES = [
    line.partition("#")[0].partition(">")[0].split()
    for line in re.findall(r"^fairnotice (.+)$", PAGE, re.MULTILINE)
    if not line.startswith(("fault", "up", "event watch", "scenario"))
]


def run(service, words):
    """Type a command of the page; ID is the event there is, or was."""
    if "ID" in words:
        (event, *_) = typed("event", "list", "--all", "--json", url=service.url).json["items"]
        words = [event["id"] if word == "ID" else word for word in words]
    done = typed(*words, url=service.url, env={"FAIRNOTICE_METADATA_URL": service.metadata})
    assert done.code == 0, done.err
    return done.out


def approve_its_own(service, vm):
    """As a good client does, sooner than the operator types the next command."""
    shown = service.look(vm)["Events"]
    mine = [one for one in shown if vm in one["Resources"] and one["EventStatus"] == "Scheduled"]
    body = json.dumps({"StartRequests": [{"EventId": one["EventId"]} for one in mine]}).encode()
    target = f"{service.metadata}/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
    if mine:
        asked = Request(target, body, {"Metadata": "true"})  # noqa: S310 - http, as served
        urlopen(asked).close()  # noqa: S310 - as above


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[-1])
def test_what_a_round_tells_the_operator_to_type(row):
    """It is accepted, and VMs are told."""
    with served(listeners=PLAYED) as service:
        for command in row:
            said = run(service, command.split())
            for vm in PLAYED:
                approve_its_own(service, vm)
        assert service.look("web-0")["DocumentIncarnation"] > 1 or "spot_0" in said


def test_what_is_typed_between_the_rounds():
    """Looking, restarting, and the story of it."""
    with served() as service:
        for words in sorted(LINES, key=lambda words: words[0] == "event"):
            assert run(service, words)
    assert ["event", "history", "ID"] in LINES
    assert len(ROWS) == 8


def test_the_scenarios_it_begins_with_are_there():
    """All three are among the twelve."""
    (line,) = re.findall(r"^fairnotice scenario run ([^#\n]+)", PAGE, re.MULTILINE)
    assert set(line.split()) <= set(SCENARIOS)
