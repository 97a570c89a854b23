"""`event watch`: a live view on a terminal, a line for each change in a pipe."""

import io
import json
import re
import signal
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from fairnotice.cli import shown, watch
from fairnotice.cli.following import Following
from fairnotice.cli.watch import Held, View
from tests.cli.typed import PROGRAM, Terminal, environment, served, typed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENT = {
    "id": "2B9CA796-AA43-5E81-2ACF-26A54CB36D9F",
    "operation": "op",
    "type": "Reboot",
    "status": "Scheduled",
    "resources": ["web-0"],
    "announced_at": "2026-01-01T12:00:00Z",
    "not_before": "2026-01-01T12:15:00Z",
    "approval": None,
    "seen": [],
    "settling_since": None,
    "started_at": None,
    "gone_at": None,
    "reason": "",
}


def line(what, about="event", **fields):
    """A line of the feed about one event."""
    row = (EVENT if about == "event" else {}) | fields
    at = None if what == "Snapshot" else "2026-01-01T12:01:00Z"
    return {"revision": 7, "at": at, "what": what, "kind": about, "removed": False, "row": row}


# ---- The real program ----


def test_a_terminal_shows_countdowns_and_who_has_seen_and_approved(service, fairnotice):
    """From the announcement to the start, until Ctrl-C ends it cleanly."""
    terminal = Terminal("event", "watch", url=service.url)
    terminal.wait_for("Ctrl-C ends")
    answer = fairnotice("vm", "restart", "db", "--json")
    event = answer.json["events"][0]["id"]
    terminal.wait_for("announced, 1")
    terminal.wait_for("in 14 s")
    service.look("db")
    terminal.wait_for("✓ db")
    terminal.wait_for("first seen by db")
    fairnotice("event", "approve", event)
    terminal.wait_for("approved by operator")
    terminal.wait_for("under way for")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "Traceback" not in terminal.text


def watching(service, *words):
    """The program in a pipe."""
    return subprocess.Popen(  # noqa: S603
        [*PROGRAM, "event", "watch", *words],
        env=environment(service.url),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_pipe_gets_a_line_for_each_change(service, fairnotice):
    """Plain, in order, and at once; and of one VM where that is asked for."""
    with watching(service, "--vm", "web-0") as program:
        assert program.stdout is not None
        fairnotice("vm", "restart", "batch_0")
        event = fairnotice("vm", "restart", "web-0", "--json").json["events"][0]["id"]
        announced = program.stdout.readline()
        fairnotice("event", "approve", event)
        approved, started = program.stdout.readline(), program.stdout.readline()
        program.send_signal(signal.SIGINT)

    assert program.returncode == 0
    assert event in announced
    assert "Reboot of web-0: " in announced
    assert "approved by operator" in approved
    assert "started after" in started


def test_a_program_gets_the_feed(service, fairnotice):
    """With --json each line is a change as the feed has it."""
    with watching(service, "--json", "--vm", "web-1") as program:
        assert program.stdout is not None
        fairnotice("vm", "restart", "web-1")
        found = json.loads(program.stdout.readline())
        program.send_signal(signal.SIGINT)

    assert found["kind"] == "event"
    assert found["row"]["resources"] == ["web-1"]


def test_a_pipe_ends_with_the_control_plane():
    """Whoever reads it is told by the exit code; a terminal waits until somebody answers again."""
    with served() as there:
        program = watching(there)
        typed("vm", "restart", "db", url=there.url)
        terminal = Terminal("event", "watch", url=there.url)
        terminal.wait_for("Reboot")
        assert program.stdout is not None
        assert "Reboot of db" in program.stdout.readline()
    terminal.wait_for("Trying again")
    terminal.interrupt()

    assert program.wait() == 4
    program.stdout.close()
    assert terminal.end() == 0


# ---- Following ----


@pytest.mark.parametrize(
    ("what", "fields", "told"),
    [
        ("EventAnnounced", {}, "announced, 15 min of notice"),
        ("EventApproved", {"approval": ["web-0", "…"]}, "approved by web-0"),
        ("EventApproved", {"approval": {"by": "web-0", "at": "…"}}, "approved by web-0"),
        ("EventSeen", {"seen": [["web-0", "…"]]}, "first seen by web-0"),
        (
            "EventPostponed",
            {"not_before": "2026-01-01T13:00:00Z"},
            "postponed, not before 13:00:00",
        ),
        ("EventResourcesChanged", {"resources": []}, "now names nobody"),
        (
            "EventStarted",
            {"started_at": "2026-01-01T12:05:00Z"},
            "started after 5 min of notice",
        ),
        ("EventStarted", {"started_at": "2026-01-01T12:00:00Z"}, "started at once"),
        ("EventSettling", {"settling_since": "…"}, "all impact is over"),
        ("EventGone", {"status": "Canceled", "reason": "by ada"}, "gone: Canceled (by ada)"),
    ],
)
def test_every_change_is_a_sentence(what, fields, told):
    """What happened to an event, in words."""
    following = Following()
    following.take(line("Snapshot"))

    assert [one.text for one in following.take(line(what, **fields))] == [told]


def test_an_impact_is_told_of_the_event_it_belongs_to():
    """The VM, where it goes, and how it ended."""
    impact = {"operation": "op", "vm": "web-0", "kind": "redeploy", "target": "node-1"}
    following = Following()
    following.take(line("EventAnnounced"))
    begun = following.take(line("ImpactBegun", "impact", **impact, status="begun", reason=""))
    ended = following.take(line("ImpactEnded", "impact", **impact, status="failed", reason="why"))
    other = following.take(line("ImpactEnded", "impact", **impact | {"operation": "x"}))

    assert [one.text for one in begun] == ["redeploy of web-0 to node-1 begun"]
    assert [one.text for one in ended] == ["redeploy of web-0 failed: why"]
    assert other == []


def test_a_snapshot_replaces_what_was_known():
    """After a break the control plane may tell everything anew."""
    following = Following()
    following.take(line("EventAnnounced", id="old"))
    following.take(line("Snapshot"))
    following.take(line("Snapshot", id="new"))

    assert list(following.events) == [EVENT["id"], "new"]


def test_what_is_forgotten_is_not_followed_any_more():
    """A removal takes the event out of view, without a word."""
    following = Following()
    following.take(line("EventAnnounced"))

    assert following.take(line("EventForgotten") | {"removed": True}) == []
    assert following.events == {}


def test_the_view_tells_trouble_and_forgets_it():
    """While nobody answers the countdowns go on, and it is said."""
    view = View("http://there", None)
    view.take([line("EventAnnounced"), "Nobody answers."])
    troubled = str(view._footing())
    view.take([line("EventSeen", seen=[["web-0", "…"]])])

    assert troubled.startswith("Nobody answers.")
    assert "Ctrl-C" in str(view._footing())


@pytest.mark.parametrize("columns", [36, 60, 79, 100])
@pytest.mark.parametrize("minutes", [1, 16])
def test_no_word_is_cut_however_narrow_the_terminal(monkeypatch, columns, minutes):
    """What does not fit beside each other stands below each other."""
    console = Console(width=columns, file=io.StringIO())
    monkeypatch.setattr(shown, "terminal", lambda: console)
    view = View("http://there", None)
    event = {"resources": ["FrontEnd_IN_0", "BackEnd_IN_0"], "approval": ["BackEnd_IN_0", "…"]}
    view.take([line("EventAnnounced", **event), line("EventApproved", **event)])
    console.print(view.picture(NOON + timedelta(minutes=minutes)))

    words = console.file.getvalue().split()
    for word in ("2B9CA796", "Reboot", "FrontEnd_IN_0", "BackEnd_IN_0", "12:15:00", "announced,"):
        assert word in words
    assert ("14" in words) == (minutes == 1)
    assert ("due:" in words) == (minutes == 16)


@pytest.mark.parametrize(("columns", "seen"), [(36, 4), (100, 20)])
def test_what_there_is_no_room_for_is_counted(monkeypatch, columns, seen):
    """As many events as fit, and how many more the list has: not those that are just gone."""
    console = Console(width=columns, height=30, file=io.StringIO())
    monkeypatch.setattr(shown, "terminal", lambda: console)
    view = View("http://there", None)
    lines = [line("Snapshot", id=f"{number:08}-…") for number in range(25)]
    gone = {"status": "Completed", "gone_at": "2026-01-01T12:00:00Z"}
    lines += [line("Snapshot", id=f"{number:08}-…", **gone) for number in range(25, 30)]
    view.take(lines)
    console.print(view.picture(NOON + timedelta(seconds=5)))

    said = console.file.getvalue()
    assert "25 announced" in " ".join(said.split())
    assert len(re.findall(r"^0000", said, re.MULTILINE)) == seen
    assert f"and {25 - seen} more: fairnotice event list" in " ".join(said.split())


def test_the_list_says_of_what_is_due_what_the_view_says():
    """One word per thing."""
    view = View("http://there", None)
    view.take([line("EventAnnounced")])
    now = NOON + timedelta(minutes=16)
    api = {**EVENT, "approvals": [], "never_seen": ["web-0"], "failed": []}
    (row,) = shown.event_rows([api], now)

    assert row[4] == "12:15:00, due: waits for its turn"
    (event,) = view._following.events.values()
    assert "due: waits for its turn" in [str(cell) for cell in watch._row(event, now)]


def test_what_is_due_and_not_confirmed_is_held_by_a_node():
    """In the view, in the list and in a pipe, from its NotBefore on; not where it is approved."""
    view, held = View("http://there", None), Held()
    before, due = NOON + timedelta(minutes=14), NOON + timedelta(minutes=16)

    def told(now, **fields):
        view.take([line("EventAnnounced", unconfirmed=["node-0", "node-1"], **fields)])
        (event,) = view._following.events.values()
        api = {
            **EVENT,
            "approvals": [],
            "never_seen": ["web-0"],
            "failed": [],
            "unconfirmed": event.held_by,
        }
        (row,) = shown.event_rows([api], now)
        cells = [str(cell) for cell in watch._row(event, now)]
        return "held: not confirmed by node-0, node-1" in cells, row[4], held.new([event], now)

    assert told(before) == (False, "12:15:00, in 1 min", [])
    seen, listed, (one,) = told(due)
    assert (seen, listed) == (True, "12:15:00, held: not confirmed by node-0, node-1")
    assert (one.at, one.text) == (due, "held: not confirmed by node-0, node-1")
    assert told(due)[2] == []
    assert told(due, approval=["web-0", "…"]) == (False, "12:15:00, due: waits for its turn", [])


def test_what_is_over_lingers_for_a_moment():
    """A person sees how it ended."""
    view = View("http://there", None)
    view.take([line("EventGone", status="Completed", gone_at="2026-01-01T12:00:00Z")])

    def events(seconds):
        return view.picture(NOON + timedelta(seconds=seconds)).renderables[2]

    assert len(events(5).rows) == 1
    assert "Nothing is announced" in str(events(15))
