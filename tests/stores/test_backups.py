"""A backup holds everything of one revision; what is restored goes on, and repeats no number."""

import gzip
import io
from contextlib import closing
from datetime import timedelta

import pytest

from fairnotice.engine import commands as ask
from fairnotice.errors import UsageError
from fairnotice.metadata.board import _answers
from fairnotice.stores import backups
from fairnotice.stores.access import Audited, Token
from fairnotice.stores.backups import LEAP, Backup
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from fairnotice.stores.webhooks import Delivery, Webhook
from fairnotice.testing.conducted import ConductedStage
from fairnotice.testing.manual_clock import DEFAULT_START
from fairnotice.words import EventSchema, EventStatus, TokenRole
from tests.engine.story import DB, OPERATOR, USER, WEB, sample
from tests.house import ROOT
from tests.stores.stories import Leading, bulk, nodes

TAKEN_AT = DEFAULT_START + timedelta(hours=1)
LATER = TAKEN_AT + timedelta(hours=2)
SORTS = ["memory", "sqlite", "postgres"]
TOKEN = Token(
    id="abc",
    name="ü \\n",
    role=TokenRole.ADMIN,
    secret_hash="0" * 64,
    created_at=DEFAULT_START,
    created_by="olga",
)
AUDITED = [
    Audited(
        at=DEFAULT_START + timedelta(microseconds=number),
        token=TOKEN.id,
        name="olga",
        source="192.0.2.1",
        method="PUT",
        path="/v1/fleet",
        status=202,
    )
    for number in range(3)
]


HOOK = Webhook(
    id="1",
    name="ops",
    url="https://example.org/?code=ü",
    schema=EventSchema.EVENTGRID,
    created_at=DEFAULT_START,
    created_by="olga",
    secret="whsec_a",  # noqa: S106 - nobody's
)
LETTERS = [
    Delivery(
        id=f"{number}",
        event="E",
        status=EventStatus.STARTED,
        queued_at=DEFAULT_START,
        next_at=DEFAULT_START,
        content="{}",
    )
    for number in range(2)
]
TOLD = {"webhook": 1, "delivery": 2}


@pytest.fixture
def opens(request, tmp_path):
    """Opens new databases of one sort, each time the same one of a name."""

    def of_sort(sort):
        made = {}

        def opened(name="one"):
            if sort == "memory":
                return made.setdefault(name, MemoryStore())
            if sort == "sqlite":
                return open_store(f"sqlite:{tmp_path / name}.db")
            if name not in made:
                made[name] = request.getfixturevalue("postgres_server").new_database()
            return open_store(made[name])

        return opened

    return of_sort


def filled(store):
    """A store with a story behind it, tokens and an audit."""
    store.add_token(TOKEN)
    store.add_audit(AUDITED)
    store.add_webhook(HOOK, 3)
    store.queue_deliveries(HOOK.id, 3, 4, LETTERS)
    leading = Leading(store)
    leading.commit(*bulk(5_100))
    for name in ("a", "b", 'it\'s \\ "ü🦜"\u2028'):
        leading.declare(name)
    return leading


def taken(store, at=TAKEN_AT):
    """The bytes of a backup."""
    return b"".join(backups.written(store.copy(), at))


def restored(data, store, now=TAKEN_AT):
    """Restore these bytes."""
    return backups.restore(Backup(io.BytesIO(data), "a file"), store, now)


def content(store):
    """Everything that a store holds, but for what a restore counts on."""
    copy = store.copy()
    rows = [row for row in copy.pieces if getattr(row, "kind", "") != "scope"]
    return rows, copy.recorded_at


# ---- A copy ----


@pytest.mark.parametrize("to", SORTS)
@pytest.mark.parametrize("of", SORTS)
def test_from_any_store_to_any_other(opens, of, to):
    """Rows in their order, journal, tokens and audit are the same; the lead can be taken."""
    source, target = opens(of)("source"), opens(to)("target")
    leading = filled(source)
    found = restored(taken(source), target)

    assert found.counts == {"fleet": 5_103, "journal": 5_103, "token": 1, "audit": 3, **TOLD}
    assert found.revision == leading.revision
    assert content(target) == content(source)
    assert [line.change for line in target.history("node:a")] == [
        line.change for line in source.history("node:a")
    ]
    assert target.tokens() == source.tokens()
    assert target.audit(10) == source.audit(10)
    assert target.webhooks() == source.webhooks() == [(HOOK, 4)]
    assert [one.delivery for one in target.deliveries(HOOK.id, 9)] == LETTERS
    Leading(target).declare("c")
    assert nodes(target) == [*nodes(source), "c"]
    source.close()
    target.close()


@pytest.mark.parametrize("sort", SORTS)
def test_a_backup_is_of_one_instant_while_commits_go_on(opens, sort):
    """What is committed while it is read is not in it, and nothing waits for it."""
    store = opens(sort)()
    leading = filled(store)
    before = content(store)
    pieces = backups.written(store.copy(), TAKEN_AT)
    data = [next(pieces)]
    leading.declare("meanwhile")
    data.extend(pieces)

    target = MemoryStore()
    restored(b"".join(data), target)
    assert content(target) == before
    # One that nobody reads to its end is nobody's trouble.
    left = backups.written(store.copy(), TAKEN_AT)
    next(left)
    left.close()
    leading.declare("afterwards")
    store.close()


@pytest.mark.parametrize("sort", SORTS)
def test_only_an_empty_database_is_filled(opens, sort):
    """Where anything was written, even a token alone, nothing is."""
    source = MemoryStore()
    Leading(source).declare("other")
    data = taken(source)
    used, with_token = opens(sort)("used"), opens(sort)("with-token")
    filled(used)
    with_token.add_token(TOKEN)

    for store in (used, with_token):
        before = content(store)
        with pytest.raises(UsageError, match="not empty"):
            restored(data, store)
        assert content(store) == before
        store.close()


# ---- A damaged file ----


def damages(data):
    """The same backup, each time damaged in another way; each with what is said of it."""
    text = gzip.decompress(data)
    lines = text.splitlines(keepends=True)
    yield b"", "no backup"
    yield b"no gzip at all", "no backup"
    yield gzip.compress(b'{"something":"else"}\n'), "no backup"
    yield data[: len(data) // 2], "cut off or damaged"
    yield data[:-1], "cut off or damaged"
    yield data[:-8] + bytes([data[-8] ^ 1]) + data[-7:], "cut off or damaged"
    # Behind the head: what can be read of it says whose file it is.
    later = len(data) * 3 // 4
    yield data[:later] + bytes([data[later] ^ 1]) + data[later + 1 :], "cut off or damaged"
    yield gzip.compress(b"".join(lines[:-1])), "its end is missing"
    yield gzip.compress(b"".join((*lines[:2], *lines[3:]))), "checksum"
    yield gzip.compress(text.replace(b'"a"', b'"z"')), "checksum"
    yield gzip.compress(text + b"more\n"), "follows its end"
    yield gzip.compress(b"".join((lines[0], b'["unknown",1]\n', *lines[1:]))), "none of ours"
    head = lines[0].replace(b'"fairnotice_backup":1', b'"fairnotice_backup":2')
    yield gzip.compress(b"".join((head, *lines[1:]))), "later than this one"


@pytest.mark.parametrize("sort", SORTS)
def test_a_damaged_backup_leaves_nothing(opens, sort):
    """Cut off, changed, somebody else's or later: refused, and the database is empty still."""
    source = MemoryStore()
    leading = Leading(source)
    for name in ("a", "b", "c"):
        leading.declare(name)
    data = taken(source)
    store = opens(sort)()

    for damaged, why in damages(data):
        with pytest.raises(UsageError, match=why):
            restored(damaged, store)
        assert list(store.copy().pieces) == []
    restored(data, store)
    assert nodes(store) == ["a", "b", "c"]
    store.close()


# ---- Nothing is repeated as something else ----


def test_what_was_given_out_after_the_backup_is_not_given_out_again():
    """Epochs, revisions, incarnations and ETags of the lost hour mean what they meant."""
    lost = MemoryStore()
    data, given_out = [], []

    with closing(ConductedStage(open_store=lambda: lost)) as stage:
        stage.tell(ask.ApplyFleet(spec=sample()))
        stage.listen(WEB, DB)
        stage.tell(ask.Restart(id="known", by=USER, vms=("web-0",)))
        data.append(taken(lost, stage.now.wall))
        for number in range(20):
            stage.tell(ask.Restart(id=f"lost-{number}", by=USER, vms=("db", "web-1")))
            given_out += shown(stage)
            stage.restart()
        last = lost.copy()

    now = stage.now.wall
    again = MemoryStore()
    restored(data[0], again, now)
    with closing(ConductedStage(start=now, open_store=lambda: again)) as stage:
        found = again.copy()
        assert found.epoch > last.epoch
        assert found.revision > last.revision
        # A follower from before is given the whole state, wherever he was.
        assert again.changes_after(last.revision, 10) is None
        assert again.changes_after(1, 10) is None
        for number in range(20):
            stage.tell(ask.Restart(id=f"new-{number}", by=USER, vms=("db", "web-1")))
            assert not set(shown(stage)) & set(given_out)
        # What the backup knew of is there, and is brought to its end.
        stage.tell(ask.Cancel(target="known", by=OPERATOR))
        assert stage.fleet.operations["known"].ended_at is not None


def test_restored_twice_nothing_is_repeated_either():
    """The second restore of one file counts on beyond what the first has given out."""
    source = MemoryStore()
    Leading(source).declare("a")
    data = taken(source)
    first, second = MemoryStore(), MemoryStore()
    restored(data, first, TAKEN_AT + timedelta(seconds=10))
    leading = Leading(first)
    leading.commit(*bulk(1_000))
    restored(data, second, TAKEN_AT + timedelta(seconds=20))
    # Whatever the clock says: never behind the backup itself.
    behind = MemoryStore()
    restored(data, behind, TAKEN_AT - timedelta(days=1))

    assert second.copy().epoch > first.copy().epoch
    assert second.copy().revision > first.copy().revision
    assert behind.copy().epoch == source.copy().epoch + LEAP


def shown(stage):
    """Which documents VMs can tell apart now: by number, by ETag."""
    found = []
    for name in (WEB, DB):
        scope, document = stage.fleet.scopes[name], stage.document(name)
        etag = _answers(scope, document, scope.enablings)[0].etag
        found += [(name, document.incarnation), (name, etag)]
    return found


# ---- Kept from release to release ----


def test_a_backup_of_an_earlier_release_is_restored(tmp_path):
    """Written by the first release that had backups; a migration has to see to these too."""
    path = ROOT / "tests" / "fixtures" / "backup-1.gz"
    url = f"sqlite:{tmp_path / 'fleet.db'}"
    with path.open("rb") as file, closing(open_store(url)) as store:
        found = backups.restore(Backup(file, "a file"), store, LATER)
    assert found.counts == {"fleet": 62, "journal": 112, "token": 1, "audit": 3}

    with closing(ConductedStage(start=LATER, open_store=lambda: open_store(url))) as stage:
        assert list(stage.asked) == ["begun/FrontEnd_IN_1"]
        stage.report("begun/FrontEnd_IN_1")
