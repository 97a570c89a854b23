"""Every store keeps every promise of the port, and the proof can fail."""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

import pytest
from msgspec.structs import replace

from fairnotice.control.tokens import Wanted, make
from fairnotice.errors import UsageError
from fairnotice.stores.access import KnownTokens
from fairnotice.stores.copies import FleetRow, Pieces
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from fairnotice.stores.store import Line, Loaded
from fairnotice.testing.sample_rows import START
from fairnotice.testing.store_contract import check_store
from fairnotice.words import TokenRole


def test_memory_keeps_its_promises():
    """In memory: the same object is the same database."""
    store = MemoryStore()
    check_store(lambda: store)


def test_sqlite_keeps_its_promises(tmp_path):
    """In a SQLite file."""
    check_store(lambda: open_store(f"sqlite:{tmp_path / 'fleet.db'}"))


def test_postgres_keeps_its_promises(postgres_url):
    """In a real PostgreSQL."""
    check_store(lambda: open_store(postgres_url))


def test_of_two_who_take_a_name_at_once_one_has_it(postgres_url):
    """Also where each has a store of its own, on one PostgreSQL."""
    stores = [open_store(postgres_url) for _ in range(4)]
    start = Barrier(len(stores))

    def add(store, number):
        token = make(Wanted(f"user-{number}", TokenRole.READER), "test", START).token
        start.wait()
        return store.add_token(token)

    with ThreadPoolExecutor(len(stores)) as threads:
        for number in range(5):
            added = list(threads.map(add, stores, [number] * len(stores)))
            assert sorted(added) == [False, False, False, True]
    assert [store.tokens_changed() for store in stores] == [5] * 4
    for store in stores:
        store.close()


# ---- Stores with one fault each ----


class ForgetsTheEpoch(MemoryStore):
    def lead(self):
        return 1


class TakesAnyEpoch(MemoryStore):
    def commit(self, _, after, changes):
        super().commit(self._epoch, after, changes)


class TakesAnyEnd(MemoryStore):
    def commit(self, epoch, _, changes):
        super().commit(epoch, self._revision, changes)


class WritesBeforeItChecks(MemoryStore):
    def commit(self, epoch, after, changes):
        for change in changes:
            self._rows["node", change.row[0]] = change.row
        super().commit(epoch, after, changes)


class WritesHalf(MemoryStore):
    def commit(self, epoch, after, changes):
        for number, change in enumerate(changes):
            super().commit(epoch, after + number, [change])


class MovesRowsToTheEnd(MemoryStore):
    def _write(self, key, change):
        self._rows.pop(key, None)
        super()._write(key, change)


class KeepsThePlaceOfRemovedRows(MemoryStore):
    def load(self):
        loaded = super().load()
        places = {}
        for line in self._journal:
            places.setdefault((type(line.change.row), line.change.row[0]), line.revision)
        rows = sorted(loaded.rows, key=lambda row: places.get((type(row), row[0]), 0))
        return loaded._replace(rows=rows)


class LoadsLazily(MemoryStore):
    def load(self):
        loaded = super().load()
        return loaded._replace(rows=self._lazy(loaded.rows[:1]))

    def _lazy(self, first):
        yield from first
        yield from list(self._rows.values())[1:]


class ForgetsWhenItWasRecorded(MemoryStore):
    def load(self):
        return Loaded(list(self._rows.values()), self._revision, None)


class IgnoresTheLimit(MemoryStore):
    def changes_after(self, revision, limit):
        return super().changes_after(revision, limit + 1)


class FollowsFromTheFuture(MemoryStore):
    def changes_after(self, revision, limit):
        return super().changes_after(min(revision, self._revision), limit)


class HidesTheGap(MemoryStore):
    def forget(self, **before):
        forgotten = super().forget(**before)
        self._feed_from = 0
        return forgotten


class ForgetsHistoryWithTheJournal(MemoryStore):
    def forget(self, *, journal_before, **_):
        return super().forget(journal_before=journal_before, history_before=journal_before)


class ForgetsTwice(MemoryStore):
    def forget(self, **before):
        return super().forget(**before) + 1


class TellsOfScopes(MemoryStore):
    def history(self, about):
        return super().history(about) or ([Line(1, None)] if about.startswith("scope:") else [])


class TellsBackwards(MemoryStore):
    def history(self, about):
        return super().history(about)[::-1]


class GoneForwards(MemoryStore):
    def events_gone(self, before, limit):
        return super().events_gone(before, limit)[::-1]


class CopiesLazily(MemoryStore):
    def copy(self):
        copy = super().copy()
        return copy._replace(pieces=Pieces(self._lazy(copy.pieces)))

    def _lazy(self, pieces):
        yield next(pieces)
        later = super().copy().pieces
        next(later)
        yield from later


class CopiesNoJournal(MemoryStore):
    def copy(self):
        copy = super().copy()
        return copy._replace(pieces=Pieces(row for row in copy.pieces if type(row) is FleetRow))


class FillsOver(MemoryStore):
    def fill(self, copy):
        self._revision = copy.revision


class NeverWakes(MemoryStore):
    def wait_beyond(self, revision, seconds):
        before = super().wait_beyond(revision, 0)
        super().wait_beyond(10**9, min(seconds, 0.2))
        return before


class DoesNotWait(MemoryStore):
    def wait_beyond(self, revision, _):
        return super().wait_beyond(revision, 0)


class RoundsInstants(MemoryStore):
    def changes_after(self, revision, limit):
        lines = super().changes_after(revision, limit)
        return lines and [
            Line(number, type(change)(change.at.replace(microsecond=0), change.row))
            for number, change in lines
        ]


class LendsNames(MemoryStore):
    def add_token(self, token):
        self._keep_token(token)
        return True


class LosesTokens(MemoryStore):
    def close(self):
        self._tokens = KnownTokens(0, [])


class HidesChangesOfTokens(MemoryStore):
    def tokens_changed(self):
        return len(self._tokens.tokens)


class RevokesAgain(MemoryStore):
    def revoke_token(self, id_, at):
        for token in self._tokens.tokens:
            if token.id == id_:
                self._keep_token(replace(token, revoked_at=at))
        return next((token for token in self._tokens.tokens if token.id == id_), None)


class AuditsForwards(MemoryStore):
    def audit(self, limit, **which):
        return super().audit(limit, **which)[::-1]


class AuditsEverybody(MemoryStore):
    def audit(self, limit, **which):
        return super().audit(limit, **{**which, "who": None})


class ForgetsTheWholeAudit(MemoryStore):
    def forget_audit(self, _):
        return super().forget_audit(datetime.max.replace(tzinfo=UTC))


class LetsTwoGoOn(MemoryStore):
    def queue_deliveries(self, webhook, _, until, deliveries):
        known = self._followed.get(webhook)
        after = -1 if known is None else known.cursor
        return super().queue_deliveries(webhook, after, until, deliveries)


class RepeatsWhatWasTaken(MemoryStore):
    def settle_deliveries(self, _, kept):
        super().settle_deliveries([], kept)


class KeepsEveryDeadLetter(MemoryStore):
    def forget_dead_letters_beyond(self, *_):
        return 0


class ForgetsTheNewestDeadLetters(MemoryStore):
    def forget_dead_letters_beyond(self, webhook, count):
        dead = self.deliveries(webhook, 1000, dead=True)[count:]
        super().settle_deliveries([one.number for one in dead], [])
        return len(dead)


class LeavesDeliveriesBehind(MemoryStore):
    def remove_webhook(self, id_):
        return self._followed.pop(id_, None) is not None


BROKEN = [
    ForgetsTheEpoch,
    TakesAnyEpoch,
    TakesAnyEnd,
    WritesBeforeItChecks,
    WritesHalf,
    MovesRowsToTheEnd,
    KeepsThePlaceOfRemovedRows,
    LoadsLazily,
    ForgetsWhenItWasRecorded,
    IgnoresTheLimit,
    FollowsFromTheFuture,
    HidesTheGap,
    ForgetsHistoryWithTheJournal,
    ForgetsTwice,
    TellsOfScopes,
    TellsBackwards,
    GoneForwards,
    CopiesLazily,
    CopiesNoJournal,
    FillsOver,
    NeverWakes,
    DoesNotWait,
    RoundsInstants,
    LendsNames,
    LosesTokens,
    HidesChangesOfTokens,
    RevokesAgain,
    AuditsForwards,
    AuditsEverybody,
    ForgetsTheWholeAudit,
    LetsTwoGoOn,
    RepeatsWhatWasTaken,
    KeepsEveryDeadLetter,
    ForgetsTheNewestDeadLetters,
    LeavesDeliveriesBehind,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_proof_can_fail(broken):
    """A store with one fault is found out, in a sentence."""
    store = broken()

    with pytest.raises(AssertionError, match="A store's promise is broken"):
        check_store(lambda: store)


# ---- URLs ----


@pytest.mark.parametrize("url", ["", "sqlite:", "mysql://root:secret@db/x", "fleet.db", "memory"])
def test_what_is_no_store_is_told_what_is(url):
    """The error names what is accepted, and repeats no password."""
    with pytest.raises(UsageError, match=r"memory:, sqlite:PATH or postgresql://") as refused:
        open_store(url)

    assert "secret" not in str(refused.value)


def test_postgres_without_psycopg_says_what_to_install(monkeypatch):
    """The driver is an extra of its own."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "fairnotice.stores.postgres.store", raising=False)
    monkeypatch.delitem(sys.modules, "fairnotice.stores.postgres.schema", raising=False)

    with pytest.raises(UsageError, match=r"pip install 'fairnotice\[server,postgres\]'"):
        open_store("postgresql://postgres@/fleet")


def test_a_wrong_postgres_url_is_the_callers_fault():
    """What libpq cannot read."""
    with pytest.raises(UsageError, match="no PostgreSQL URL"):
        open_store("postgresql://a@b/c?nonsense=1")
