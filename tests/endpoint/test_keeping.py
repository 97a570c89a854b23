"""What an endpoint keeps: the lines it was told, and what it served and nobody knows yet."""

import asyncio
import os
import socket
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from fairnotice.clock import SystemClock
from fairnotice.control.node_lines import (
    At,
    Hello,
    NoScope,
    NoVm,
    ScopeIs,
    SnapshotBegins,
    VmIs,
    encode,
)
from fairnotice.endpoint import unreported
from fairnotice.endpoint.front import Front, Manner, Served
from fairnotice.endpoint.holding import Holding
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.steering import listening
from fairnotice.endpoint.unreported import Unreported
from fairnotice.errors import Unavailable
from fairnotice.metadata.board import FirstSeen
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ScopeKind

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCOPE = ScopeIs(
    "vm:a",
    ScopeKind.STANDALONE,
    "a",
    enabled=True,
    enablings=1,
    incarnation=1,
    declared_revision=1,
    document_incarnation=1,
)


def told(holding, *lines):
    """Have these lines taken; what the last of them closes."""
    found = None
    for line in lines:
        found = holding.take(line if isinstance(line, bytes) else encode(line).rstrip(b"\n"))
    return found


def snapshot(holding):
    """A node with one VM."""
    return told(holding, Hello(1, "n"), SnapshotBegins(), SCOPE, VmIs("a", "vm:a"), At(7))


def test_lines_count_when_they_are_closed():
    """Half of a snapshot is nothing; a feed that breaks off leaves what there was."""
    holding = Holding()
    snapshot(holding)
    assert told(holding, SnapshotBegins()) is None
    assert list(holding.vms) == ["a"]

    holding.begin()
    told(holding, NoVm("a"), NoScope("vm:a"), At(8))
    assert (holding.revision, holding.vms, holding.scopes) == (8, {}, {})


def test_what_a_later_control_plane_says_is_passed_over():
    """Kinds and fields that this program does not know; what is broken is not."""
    holding = Holding()
    found = told(
        holding,
        b'{"kind":"weather","is":"fine"}',
        b'{"kind":"hello","protocol":1,"node":"n","mood":"good"}',
        b'{"kind":"at","revision":3,"since":"yesterday"}',
    )
    assert found.at.revision == 3
    assert len(found.lines) == 2
    for broken in (b'{"kind":"at"}', b'{"kind":"at","revision":"x"}', b"at", b"{}"):
        with pytest.raises(Unavailable, match="cannot be read"):
            holding.take(broken)


def test_a_saved_board_is_of_one_node(tmp_path):
    """It is taken up by the next life of the same node's endpoint, and by no other's."""
    clock, holding = ManualClock(), Holding()
    snapshot(holding)
    saved = Saved(tmp_path, "n", clock)
    saved.save(holding)
    assert saved.revision == 7
    again, other = Holding(), Holding()

    assert Saved(tmp_path, "n", clock).load(again).at.revision == 7
    assert again.whole() == holding.whole()
    assert Saved(tmp_path, "m", clock).load(other) is None
    (tmp_path / "board.jsonl").write_bytes(b"".join(holding.whole())[:-5])
    assert Saved(tmp_path, "n", clock).load(Holding()) is None


def test_a_board_is_written_behind_what_is_there(tmp_path):
    """What is told is on disk before anybody hears that it is; a line that was cut is not there."""

    async def story():
        clock, holding = SystemClock(), Holding()
        saved = Saved(tmp_path, "n", clock)
        kept, written = asyncio.Event(), []
        work = asyncio.create_task(saved.saving(holding, kept.set, lambda: None))
        for told_now in (
            snapshot,
            lambda it: told(it, NoVm("a"), At(8)),
            lambda it: told(it, At(9)),
        ):
            saved.keep(told_now(holding))
            await asyncio.wait_for(kept.wait(), 10)
            kept.clear()
            again = Holding()
            Saved(tmp_path, "n", clock).load(again)
            written.append((saved.revision, again.revision, list(again.vms)))
        work.cancel()
        return written

    assert asyncio.run(story()) == [(7, 7, ["a"]), (8, 8, []), (9, 9, [])]
    with (tmp_path / "board.jsonl").open("ab") as file:
        file.write(b'{"kind":"no-scope","na')
    again = Holding()
    assert Saved(tmp_path, "n", ManualClock()).load(again).at.revision == 9
    assert list(again.scopes) == ["vm:a"]


def test_a_disk_that_takes_nothing_confirms_nothing(tmp_path):
    """What cannot be written is not on disk, and is written when it can be."""
    clock, holding = ManualClock(), Holding()
    saved = Saved(tmp_path, "n", clock)
    (tmp_path / "board.jsonl.new").mkdir()
    saved.keep(snapshot(holding))
    saved.save(holding)
    assert saved.revision == 0

    (tmp_path / "board.jsonl.new").rmdir()
    saved.save(holding)
    assert Saved(tmp_path, "n", clock).load(Holding()).at.revision == 7


def test_a_saved_board_says_how_old_it_is(tmp_path):
    """Since a control plane last said so, also where an earlier life was told."""
    clock, holding = ManualClock(), Holding()
    saved = Saved(tmp_path, "n", clock)
    saved.keep(snapshot(holding))
    clock.advance(minutes=1)
    saved.save(holding)
    clock.advance(hours=1)
    os.utime(tmp_path / "board.jsonl", (0, 0))
    again = Saved(tmp_path, "n", clock)
    again.load(Holding())

    assert (again.age_seconds, again.away_seconds()) == (3660.0, 3600.0)


def served(*events, heard=()):
    """That one VM saw these."""
    return Served([FirstSeen(event, "a", NOON) for event in events], [(s, NOON) for s in heard])


def test_what_was_served_outlives_the_process_until_it_is_reported(tmp_path):
    """Written when it happens, read by the next life, gone when it is known."""
    path = tmp_path / "unreported.jsonl"
    first = Unreported(path)
    first.add(served("E1", heard=["vm:a"]))
    first.add_unserved(["vm:a"], 60.0, NOON)
    first.add_unserved(["vm:a"], 30.0, NOON + timedelta(hours=2))
    with path.open("a") as file:
        file.write('{"seen": [["E2"')

    second = Unreported(path)
    batch = second.batch()
    at = NOON.isoformat()
    assert batch == {
        "seen": [{"event": "E1", "vm": "a", "at": at}],
        "heard": [{"scope": "vm:a", "at": at}],
        "unserved": {"scopes": ["vm:a"], "seconds": 60.0, "until": at},
    }
    second.add(Served([], [("vm:a", NOON + timedelta(hours=1))]))
    second.reported(batch)
    assert second.batch() == {
        "heard": [{"scope": "vm:a", "at": "2026-01-31T13:00:00+00:00"}],
        "unserved": {"scopes": ["vm:a"], "seconds": 30.0, "until": "2026-01-31T14:00:00+00:00"},
    }
    second.reported(second.batch())
    assert path.read_bytes() == b""
    assert len(Unreported(path)) == 0


def test_the_oldest_is_dropped_where_it_is_too_much(tmp_path, monkeypatch):
    """What is kept is bounded, and what is lost is counted."""
    monkeypatch.setattr(unreported, "SEEN_MAX", 3)
    kept = Unreported(tmp_path / "unreported.jsonl")
    kept.add(served("E1", "E2"))
    kept.add(served("E3", "E4"))

    assert [one["event"] for one in kept.batch()["seen"]] == ["E2", "E3", "E4"]
    assert kept.dropped_count == 1


@pytest.mark.parametrize(
    ("where", "sources"),
    [("127.0.0.1", ["127.69.0.1", "127.69.0.2", "127.69.0.3"]), ("::1", ["::1"])],
)
def test_the_kernel_chooses_by_the_address(where, sources):
    """Every connection of an address goes to the same socket, and neighbours to others."""
    sockets = listening((where, 0), 3, 16)
    chosen = {}
    try:
        for source in sources:
            for _ in range(5):
                with socket.create_connection(
                    sockets[0].getsockname()[:2], 5, source_address=(source, 0)
                ):
                    chosen.setdefault(source, set()).add(accepted_by(sockets))
    finally:
        for sock in sockets:
            sock.close()

    assert all(len(numbers) == 1 for numbers in chosen.values())
    assert len(set(map(frozenset, chosen.values()))) == len(sources)


def accepted_by(sockets):
    """The number of the socket at which somebody has come in."""
    for number, sock in enumerate(sockets):
        sock.settimeout(0)
        try:
            sock.accept()[0].close()
        except BlockingIOError:
            continue
        return number
    raise AssertionError("nobody came in")


def test_nobody_is_led_back_to_what_is_over():
    """A control plane that lags tells less than is shown: nothing of it counts."""
    holding = Holding()
    snapshot(holding)
    with pytest.raises(Unavailable, match="at revision 6, and 7 was told"):
        told(holding, Hello(1, "n"), SnapshotBegins(), At(6))
    assert (holding.revision, list(holding.vms)) == (7, ["a"])

    holding.begin()
    assert told(holding, Hello(1, "n"), SnapshotBegins(), At(7)).at.revision == 7


class Nobody:
    """Where nothing is passed on."""

    async def approve(self, vm, events):
        raise AssertionError((vm, events))

    async def enable(self, scope):
        raise AssertionError(scope)

    async def identify(self, vm, resource, identity):
        raise AssertionError((vm, resource, identity))


def test_a_document_that_cannot_be_shown_hides_no_other():
    """A fault in one: others are shown, nothing is confirmed; it is tried with the next line."""

    async def story():
        front = Front(Nobody(), ManualClock(), Manner(), lambda _: None)
        publish, odd = front.board.publish, ["vm:a"]

        def fails_once(scope, document):
            if scope.name in odd:
                odd.remove(scope.name)
                raise ValueError("nobody has thought of this")
            publish(scope, document)

        front.board.publish = fails_once
        holding = Holding()
        other, vm = replace(SCOPE, name="vm:b"), VmIs("a", "vm:a", ("10.0.0.1",))
        with pytest.raises(ValueError, match="nobody has thought"):
            front.show(told(holding, Hello(1, "n"), SnapshotBegins(), SCOPE, other, vm, At(7)))
        assert (list(front.board.pages), front.revision) == (["vm:b"], 0)

        front.show(told(holding, At(8)))
        assert (sorted(front.board.pages), front.revision) == (["vm:a", "vm:b"], 8)
        assert list(front.board.callers) == ["a"]

    asyncio.run(story())
