"""The proof of a store: every promise of `fairnotice.stores.store.Store`, tried in turn.

    def test_my_store(tmp_path):
        check_store(lambda: MyStore(tmp_path / "fleet"))

Each call of `make_store` opens the same database anew, as after a restart; it is empty at first.
A promise that is broken is an AssertionError with a sentence that says which.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from threading import Thread
from typing import Any

from fairnotice.engine.changes import (
    Change,
    EventAnnounced,
    EventForgotten,
    EventGone,
    ImpactBegun,
    NodeDeclared,
    NodeRemoved,
    OperationPlanned,
    Removal,
    RolloutChanged,
    RolloutNodeChanged,
    Row,
    ScopeDeclared,
    ScopeHeard,
    VmDeclared,
    VmRemoved,
)
from fairnotice.errors import JournalMoved, LeadLost, UsageError
from fairnotice.model import Node
from fairnotice.stores.copies import FleetRow, JournalRow
from fairnotice.stores.rows import CHANGES, change_from, decode, id_of, kind_of, row_type_of
from fairnotice.stores.store import Line, Store
from fairnotice.testing import sample_rows as sample
from fairnotice.testing import store_contract_access, store_contract_webhooks
from fairnotice.testing.sample_rows import START
from fairnotice.testing.store_contract_access import promise

# How long a wake-up may take before it counts as not having come, and the wait that it ends.
WAKE_SECONDS = 10.0
LONG_WAIT_SECONDS = 60.0
# More changes than a store is likely to write in one piece.
MANY = 11_000


def check_store(make_store: Callable[[], Store]) -> None:
    """Try every promise of a store; AssertionError with a sentence where one is broken."""
    for check in (
        _epochs_grow_across_restarts,
        _every_change_comes_back,
        _rows_keep_the_order_of_first_writing,
        _unusual_text_comes_back,
        _large_commits_are_like_small_ones,
        _a_refused_commit_leaves_nothing,
        _a_broken_commit_leaves_nothing,
        _an_empty_commit_is_none,
        _a_load_is_one_instant,
        _followers_read_on,
        _histories_are_told,
        _a_copy_is_one_instant,
        _only_an_empty_store_is_filled,
        _waiting_ends,
        _hanging_up_is_outlived,
        _old_lines_are_forgotten,
        *store_contract_access.PROMISES,
        *store_contract_webhooks.PROMISES,
    ):
        check(make_store)


# More pieces than these few lines could ever be deleted in.
PIECES_MAX = 1_000


class _Leader:
    """Leads on a store, and knows what should be in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.epoch = store.lead()
        loaded = store.load()
        self.rows = {(kind_of(row), id_of(row)): row for row in loaded.rows}
        self.revision = loaded.revision
        self.recorded_at = loaded.recorded_at

    def commit(self, *changes: Change[Any]) -> None:
        """Commit, and note what the store should hold now."""
        self.store.commit(self.epoch, self.revision, changes)
        self.revision += len(changes)
        for change in changes:
            key = kind_of(change.row), id_of(change.row)
            self.recorded_at = change.at
            if isinstance(change, Removal):
                self.rows.pop(key, None)
            else:
                self.rows[key] = change.row

    def compare(self, when: str) -> None:
        """The store holds what was committed, and no more."""
        _compare(self.store, self, when)


def _compare(store: Store, expected: _Leader, when: str) -> None:
    loaded = store.load()
    found = list(loaded.rows)
    wanted = list(expected.rows.values())
    promise(
        set(found) == set(wanted) and len(found) == len(wanted),
        f"{when}, load shows rows that were not committed, or not those that were: "
        f"{_first_of(set(found) ^ set(wanted))}.",
    )
    promise(found == wanted, f"{when}, rows are not in the order of their first writing.")
    promise(
        loaded.revision == expected.revision,
        f"{when}, load is at revision {loaded.revision} and not at {expected.revision}.",
    )
    promise(
        loaded.recorded_at == expected.recorded_at,
        f"{when}, load was recorded at {loaded.recorded_at} and not at {expected.recorded_at}.",
    )


def _first_of(rows: set[Row]) -> str:
    return "; ".join(str(tuple(row)) for row in islice(rows, 2))


@contextmanager
def _leading(make_store: Callable[[], Store]) -> Iterator[_Leader]:
    """Lead for a while; what was committed is there before and after a restart."""
    store = make_store()
    try:
        leader = _Leader(store)
        yield leader
        leader.compare("Before a restart")
    finally:
        store.close()
    store = make_store()
    try:
        _compare(store, leader, "After a restart")
    finally:
        store.close()


def _lines(store: Store, after: int, limit: int = 1_000_000) -> list[Line]:
    lines = store.changes_after(after, limit)
    promise(lines is not None, f"changes_after({after}) is None, and nothing is forgotten.")
    return lines or []


# ---- The promises ----


def _epochs_grow_across_restarts(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as first:
        promise(first.revision == 0, "an empty database is at revision 0.")
        promise(first.recorded_at is None, "in an empty database nothing was recorded.")
        earlier = first.epoch
        first.epoch = first.store.lead()
        promise(first.epoch > earlier, "lead begins an epoch higher than all before.")
        first.commit(NodeDeclared(START, Node("epochs")))
    with _leading(make_store) as second:
        promise(second.epoch > first.epoch, "an epoch is remembered across restarts.")


def _every_change_comes_back(make_store: Callable[[], Store]) -> None:
    changes = [
        change(START + timedelta(microseconds=number), row)
        for number, (name, change) in enumerate(sorted(CHANGES.items()))
        for row in sample.ROWS
        if type(row) is row_type_of(name)
    ]
    with _leading(make_store) as leader:
        before = leader.revision
        leader.commit(*changes)
        # Those that a removal has taken, once more.
        leader.commit(*(change for change in changes if not isinstance(change, Removal)))
    store = make_store()
    for line, change in zip(_lines(store, before), changes, strict=False):
        what = type(change).__name__
        promise(type(line.change) is type(change), f"{what} comes back as another change.")
        promise(line.change == change, f"{what} comes back different: {line.change}.")
        promise(line.change.at.utcoffset() == timedelta(0), f"{what} comes back not in UTC.")
    store.close()


def _rows_keep_the_order_of_first_writing(make_store: Callable[[], Store]) -> None:
    one, two, three = Node("order-c"), Node("order-a"), Node("order-b")
    with _leading(make_store) as leader:
        leader.commit(*(NodeDeclared(START, node) for node in (one, two, three)))
        leader.commit(NodeDeclared(START, one._replace(capacity=2)))
        leader.compare("After a row was written again")
        leader.commit(NodeRemoved(START, two), NodeDeclared(START, two))
        leader.compare("After a row was removed and declared anew in one commit")
        leader.commit(
            NodeDeclared(START, three._replace(capacity=3)),
            NodeRemoved(START, three),
            NodeDeclared(START, Node("order-new")),
            NodeDeclared(START, three),
            NodeDeclared(START, three._replace(capacity=4)),
        )
        leader.compare("After a row was removed and declared twice in one commit")
        leader.commit(VmDeclared(START, sample.VM._replace(name="brief")))
        leader.commit(
            VmDeclared(START, sample.VM._replace(name="brief", zone="2")),
            VmRemoved(START, sample.VM._replace(name="brief", zone="2")),
            NodeRemoved(START, Node("never was")),
        )
        leader.compare("After a row was written and removed in one commit")


def _unusual_text_comes_back(make_store: Callable[[], Store]) -> None:
    names = (
        "it's",
        'say "a"',
        "a\\b",
        "{a,b}",
        "NULL",
        "null",
        "50%",
        "%s",
        ":a",
        "ü🦜\u2028",
        " ",
    )
    tags = tuple((name, "\x00\n\t" + name) for name in names)
    with _leading(make_store) as leader:
        leader.commit(
            *(VmDeclared(START, sample.VM._replace(name=name, tags=tags)) for name in names)
        )
        for name in names:
            promise(leader.store.history(f"vm:{name}"), f"the history of a VM called {name!r}.")


def _large_commits_are_like_small_ones(make_store: Callable[[], Store]) -> None:
    nodes = [Node(f"many-{number:05}") for number in range(MANY)]
    declared = [NodeDeclared(START, node) for node in nodes]
    with _leading(make_store) as leader:
        before = leader.revision
        leader.commit(*declared, NodeRemoved(START, nodes[0]), declared[0])
        promise(
            [line.revision for line in _lines(leader.store, before)]
            == list(range(before + 1, before + MANY + 3)),
            "a large commit has one line per change, numbered without gaps.",
        )
        leader.compare("After a large commit")
        leader.commit(*(NodeRemoved(START, node) for node in nodes))


def _a_refused_commit_leaves_nothing(make_store: Callable[[], Store]) -> None:
    refused = NodeDeclared(START + timedelta(days=1), Node("refused"))
    with _leading(make_store) as leader:
        store = leader.store
        for after in (leader.revision - 1, leader.revision + 1):
            _must_raise(JournalMoved, store, leader.epoch, after, refused)
            leader.compare("After a commit that did not follow the journal's end")
        earlier, leader.epoch = leader.epoch, store.lead()
        for epoch in (earlier, 0):
            _must_raise(LeadLost, store, epoch, leader.revision, refused)
            leader.compare("After a commit of an earlier epoch")
        _must_raise(LeadLost, store, earlier, leader.revision - 1, refused)
        promise(not store.history("node:refused"), "a refused commit is in no history.")
        promise(not _lines(store, leader.revision), "a refused commit is not in the journal.")
        leader.commit(NodeDeclared(START, Node("not-refused")))


def _must_raise(
    error: type[Exception], store: Store, epoch: int, after: int, change: Change[Any]
) -> None:
    try:
        store.commit(epoch, after, [change])
    except error:
        return
    raise AssertionError(
        f"A store's promise is broken: commit({epoch}, {after}, …) raises {error.__name__} where "
        f"the lead or the journal's end is another."
    )


def _a_broken_commit_leaves_nothing(make_store: Callable[[], Store]) -> None:
    no_row: Any = object()
    broken: Sequence[Change[Any]] = (NodeDeclared(START, Node("half")), NodeDeclared(START, no_row))
    with _leading(make_store) as leader:
        try:
            leader.store.commit(leader.epoch, leader.revision, broken)
        except Exception:  # noqa: BLE001 - which one is the store's affair
            leader.compare("After a commit that failed in its middle")
        else:
            promise(kept=False, sentence="a commit of what is no row fails.")
        leader.commit(NodeDeclared(START, Node("whole")))


def _an_empty_commit_is_none(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        leader.commit()
        leader.compare("After a commit of no changes")


def _a_load_is_one_instant(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        before = list(leader.rows.values())
        loaded = leader.store.load()
        rows = iter(loaded.rows)
        found = [next(rows)]
        leader.commit(
            NodeRemoved(START, Node("order-new")), NodeDeclared(START, Node("while-loading"))
        )
        found.extend(rows)
        promise(found == before, "the rows of a load are of one instant, that of its revision.")
        # Left before its end: that is nobody's trouble.
        next(iter(leader.store.load().rows))


def _followers_read_on(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        store, before = leader.store, leader.revision
        leader.commit(*(ScopeHeard(START, sample.SCOPE) for _ in range(5)))
        found = [line.revision for line in _lines(store, before, 2)]
        promise(found == [before + 1, before + 2], f"changes_after keeps its limit: {found}.")
        found = [line.revision for line in _lines(store, before + 2, 10)]
        promise(found == [before + 3, before + 4, before + 5], f"changes_after goes on: {found}.")
        promise(_lines(store, leader.revision) == [], "nothing follows the journal's end.")
        promise(
            store.changes_after(leader.revision + 1, 10) is None,
            "changes_after is None for a follower from the future: it needs a snapshot.",
        )


def _histories_are_told(make_store: Callable[[], Store]) -> None:
    event = sample.EVENT._replace(id="told-event", operation="told")
    story: list[Change[Any]] = [
        OperationPlanned(START, sample.OPERATION._replace(id="told")),
        EventAnnounced(START, event),
        ImpactBegun(START, sample.IMPACT._replace(key="told-key", operation="told")),
        EventGone(START, event),
        EventForgotten(START, event),
    ]
    with _leading(make_store) as leader:
        other = EventAnnounced(START, event._replace(id="x", operation="told-2"))
        leader.commit(story[0], other, *story[1:3], ScopeHeard(START, sample.SCOPE))
        leader.commit(*story[3:])
        told = leader.store.history("operation:told")
        promise(
            [line.change for line in told] == story,
            "the history of an operation is its changes and those of its events and impacts.",
        )
        promise(
            [line.revision for line in told] == sorted(line.revision for line in told),
            "a history is told oldest first.",
        )
        promise(
            leader.store.history("event:told-event") == told,
            "the history of an event is that of its operation.",
        )
        promise(leader.store.history("event:nothing") == [], "an unknown event has none.")
        leader.commit(
            RolloutChanged(START, sample.ROLLOUT._replace(id="told")),
            RolloutNodeChanged(START, sample.ROLLOUT_NODE._replace(rollout="told")),
        )
        promise(len(leader.store.history("rollout:told")) == 1, "only lasting kinds are told of.")
        promise(leader.store.history(f"scope:{sample.SCOPE.name}") == [], "scopes have no history.")
        promise(leader.store.history("vm:nobody") == [], "who is unknown has an empty history.")
        leader.commit(EventGone(START, event._replace(id="later")))
        gone = leader.store.events_gone(leader.revision + 1, 2)
        promise(
            [line.change.row.id for line in gone] == ["later", "told-event"],
            "events_gone tells of events that are over, the newest first.",
        )
        promise(leader.store.events_gone(gone[0].revision, 1) == gone[1:], "it goes on from there.")


def _a_copy_is_one_instant(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        store, before = leader.store, list(leader.rows.values())
        copy = store.copy()
        pieces = [next(copy.pieces)]
        ended = leader.revision, leader.recorded_at
        leader.commit(NodeDeclared(START, Node("while-copying")))
        pieces.extend(copy.pieces)
        found = [decode(piece.kind, piece.body) for piece in pieces if isinstance(piece, FleetRow)]
        promise(found == before, "the rows of a copy are of one instant, in their order.")
        promise((copy.revision, copy.recorded_at) == ended, "a copy says where it ended.")
        lines = [
            Line(piece.revision, change_from(piece.what, START.fromisoformat(piece.at), piece.body))
            for piece in pieces
            if isinstance(piece, JournalRow)
        ]
        wanted = _lines(store, 0, len(lines))
        promise(lines == wanted and len(lines) == ended[0], "a copy has the journal.")


def _only_an_empty_store_is_filled(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        copy = leader.store.copy()
        try:
            leader.store.fill(copy)
        except UsageError:
            leader.compare("After a copy that was refused")
        else:
            promise(kept=False, sentence="fill is refused where something is held.")
        finally:
            copy.pieces.close()


def _waiting_ends(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        store, before = leader.store, leader.revision
        promise(store.wait_beyond(before - 1, LONG_WAIT_SECONDS) == before, "what is, is.")
        promise(store.wait_beyond(before, 0.02) == before, "wait_beyond ends after its time.")
        promise(store.wait_beyond(before, 0) == before, "wait_beyond may be asked not to wait.")
        woken: list[int] = []
        waiting = [
            Thread(
                target=lambda: woken.append(store.wait_beyond(before, LONG_WAIT_SECONDS)),
                daemon=True,
            )
            for _ in range(2)
        ]
        for thread in waiting:
            thread.start()
        waiting[0].join(0.1)
        promise(waiting[0].is_alive(), "wait_beyond waits while nothing is committed.")
        leader.commit(NodeDeclared(START, Node("awaited")))
        for thread in waiting:
            thread.join(WAKE_SECONDS)
        promise(woken == [before + 1] * 2, "a commit wakes every thread that waits for it.")


def _hanging_up_is_outlived(make_store: Callable[[], Store]) -> None:
    with _leading(make_store) as leader:
        leader.store.hang_up()
        leader.commit(NodeDeclared(START, Node("after hanging up")))
        leader.compare("After hanging up")


def _old_lines_are_forgotten(make_store: Callable[[], Store]) -> None:
    old, kept = START + timedelta(days=10), START + timedelta(days=20)
    between = START + timedelta(days=15)
    with _leading(make_store) as leader:
        store, before = leader.store, leader.revision
        leader.commit(
            ScopeDeclared(old, sample.SCOPE._replace(name="forgotten")),
            NodeDeclared(old, Node("remembered")),
            ScopeHeard(kept, sample.SCOPE._replace(name="forgotten")),
            NodeDeclared(kept, Node("remembered", capacity=2)),
        )
        forgotten = _forget_all(store, journal_before=between, history_before=START)
        promise(forgotten > 0, "forget says how many lines it deleted.")
        leader.compare("After forgetting lines of the journal")
        promise(len(store.history("node:remembered")) == 2, "history outlives the journal.")
        promise(
            all(store.changes_after(after, 10) is None for after in (0, before - 1, before)),
            "changes_after is None where a line that follows is forgotten.",
        )
        promise(
            [line.revision for line in _lines(store, before + 1)]
            == list(range(before + 2, before + 5)),
            "what is not forgotten is still followed, without gaps.",
        )
        again = store.forget(journal_before=between, history_before=START)
        promise(again == 0, "what is forgotten is not forgotten again.")
        _forget_all(store, journal_before=START, history_before=between)
        promise(len(store.history("node:remembered")) == 1, "history is forgotten in its time.")
        promise(store.changes_after(before + 1, 10) is None, "the feed forgets history too.")
        promise(len(_lines(store, before + 2)) == 2, "newer lines stay when history is forgotten.")
    with _leading(make_store) as leader:
        found = leader.store.changes_after(before + 1, 10)
        promise(found is None, "what is forgotten is known to be so after a restart.")
        leader.commit(NodeDeclared(kept, Node("after-forgetting")))


def _forget_all(store: Store, **before: datetime) -> int:
    """Forget piece by piece, as the conductor does; how many lines in all."""
    pieces = list(islice(iter(lambda: store.forget(**before), 0), PIECES_MAX))
    promise(len(pieces) < PIECES_MAX, "forget says 0 when there is nothing left to delete.")
    return sum(pieces)
