"""Tables: of no list is anything cut, however narrow the terminal is."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from fairnotice.cli import shown
from tests.cli.typed import Terminal, served, typed

# What a row of a list must show in whole words, at every width.
LISTS = {
    "vm": lambda row: (row["name"], row["power"], row["scope"], row["node"]),
    "node": lambda row: (row["name"], *row["state"].split(), *row["vms"]),
    "scale-set": lambda row: (row["name"], row["priority"], *row["vms"]),
    "rollout": lambda row: (row["id"][:8], row["kind"], row["status"], str(row["node_count"])),
    "operation": lambda row: (_typed(row["id"]), row["kind"], row["status"], *row["vms"]),
    "event": lambda row: (row["id"][:8], row["type"], row["status"], *row["resources"]),
    "fault": lambda row: (row["id"], row["vm"]),
}


def _typed(name):
    head, point, number = name.partition(".")
    return head[:8] + point + number


@pytest.fixture(scope="module")
def busy():
    """A service with something in every list."""
    with served() as there:
        later = ("--not-before", "+30d")
        for words in (
            ("vm", "restart", "FrontEnd_IN_0", "FrontEnd_IN_1", *later),
            ("node", "maintain", "node-1", "--impact", "reboot", *later),
            ("rollout", "start", "node-2", "node-4", "--impact", "reboot"),
            ("fault", "set", "straight-to-started", "--vm", "FrontEnd_IN_0"),
        ):
            ended = typed(*words, url=there.url)
            assert ended.code == 0, ended.err
        yield there


@pytest.mark.parametrize("columns", [40, 80, 100])
@pytest.mark.parametrize("kind", LISTS)
def test_no_cell_of_a_list_is_cut(busy, kind, columns):
    """On the usual terminal of 80 columns, and on others."""
    rows = typed(kind, "list", "--json", url=busy.url).json["items"]
    terminal = Terminal(kind, "list", url=busy.url, columns=columns)

    assert terminal.end() == 0
    assert rows
    words = terminal.text.replace(",", " ").split()
    for row in rows:
        missing = [word for word in LISTS[kind](row) if word not in words]
        assert missing == [], terminal.text
    assert max(len(line.rstrip()) for line in terminal.text.splitlines()) <= columns


def drawn(sheet, columns):
    """A sheet as it is drawn in so many columns."""
    console = Console(width=columns, file=io.StringIO())
    console.print(sheet)
    return console.file.getvalue()


def row(**more):
    """An event of the API that takes much room."""
    return {
        "id": "2B9CA796-0000-0000-0000-000000000000",
        "type": "Terminate",
        "status": "Scheduled",
        "resources": ["FrontEnd_IN_0", "BackEnd_IN_0"],
        "not_before": "2026-01-01T12:00:00Z",
        "gone_at": None,
        "never_seen": ["BackEnd_IN_0"],
        "failed": [],
        "approvals": [{"by": "FrontEnd_IN_0"}],
        **more,
    }


@pytest.mark.parametrize("columns", [40, 79, 80, 100, 120])
def test_an_event_that_is_due_is_shown_whole(monkeypatch, columns):
    """Its VMs and its status are what the list is for."""
    monkeypatch.setattr(shown, "terminal", lambda: Console(force_terminal=True))
    said = drawn(shown.events([row()], datetime(2026, 1, 1, 12, 1, tzinfo=UTC)), columns)

    words = said.replace(",", " ").split()
    for word in ("2B9CA796", "Terminate", "Scheduled", "FrontEnd_IN_0", "BackEnd_IN_0", "due:"):
        assert word in words, said
    assert ("1 of 2" in said) or ("Left out for want of room: SEEN." in said)


def test_what_is_worth_least_is_left_out_first_and_said():
    """Closer first; then one after another; then below each other, where all is shown again."""
    sheet = shown.table(("A", "B", "C"), [("aaaa", "bbbb", "cccc")], ("B", "C"))

    assert drawn(sheet, 18).splitlines()[-1].split() == ["aaaa", "bbbb", "cccc"]
    assert drawn(sheet, 16).splitlines()[-1].rstrip() == "aaaa  bbbb  cccc"
    assert "bbbb" not in drawn(sheet, 15)
    assert " ".join(drawn(sheet, 15).split()).endswith("Left out for want of room: B.")
    assert " ".join(drawn(sheet, 9).split()).endswith("Left out for want of room: B, C.")
    wide = shown.table(("A", "B"), [("a" * 12, "b" * 12)])
    assert drawn(wide, 25).split() == ["a" * 12, "b" * 12]


def test_what_has_no_room_beside_each_other_stands_below_each_other():
    """Each with its heading; what is empty is left out."""
    sheet = shown.table(("A", "B", "WHERE", "C"), [("a" * 9, "b" * 9, "here", None)])

    assert [line.rstrip() for line in drawn(sheet, 21).splitlines()] == [
        f"{'a' * 9}  {'b' * 9}",
        "  WHERE  here",
    ]
