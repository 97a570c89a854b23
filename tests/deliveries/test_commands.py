"""Webhooks by the command line, and who may."""

import json
import stat
import urllib.request

import pytest

from fairnotice.cli import exits
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import TokenRole
from tests.cli.typed import typed
from tests.control.bearers import kept
from tests.control.calling import restarted, serving
from tests.deliveries.receivers import receiving
from tests.waiting import until


@pytest.fixture
def type_in(served):
    """Types a command for the service."""
    url = f"http://{served.run.control}"
    return lambda *words, **more: typed("webhook", *words, url=url, **more)


def test_a_webhook_from_its_beginning_to_its_end(served, receiver, type_in):
    """Made, looked at, tested, told, its dead letter read and delivered again, deleted."""
    empty = type_in("list")
    assert "There is no webhook" in empty.out
    made = type_in("create", "ops", receiver.url, "--signed", "--status", "Scheduled")
    assert made.code == exits.DONE, made.err
    assert made.out.startswith("whsec_")
    assert len(made.out.split()) == 1
    assert made.out.strip() not in made.err
    assert "delivering" in type_in("list").out
    assert type_in("test", "ops").out == "Taken: it answered 200.\n"
    receiver.next()
    receiver.answers = lambda _: 400
    event = restarted(served)
    until(lambda: event in type_in("dead-letters", "ops").out)
    assert type_in("test", "ops").code == exits.REFUSED
    receiver.answers = lambda _: 200
    none = type_in("redeliver", "ops", "nope")
    assert (none.code, "ops has no dead letter nope." in none.err) == (exits.NOT_FOUND, True)
    again = type_in("redeliver", "ops")
    assert (again.out, "fairnotice webhook show ops" in again.err) == ("Tried again: 1\n", True)
    assert receiver.next().properties["EventId"] == event.lower()
    shown = json.loads(type_in("show", "ops", "--json").out)
    assert (shown["statuses"], shown["signed"]) == (["Scheduled"], True)
    assert type_in("delete", "ops").out == "Deleted: ops\n"
    assert type_in("show", "ops").code == exits.NOT_FOUND


def test_what_it_was_made_with_is_shown_and_how_it_stands(served, receiver, type_in):
    """Also who is not reached, why, and when he is tried again."""
    limits = ("--attempts", "7", "--keep-minutes", "1", "--type", "Reboot")
    assert type_in("create", "ops", receiver.url, "--signed", *limits).code == exits.DONE
    receiver.answers = lambda _: 500
    served.run.delivering.retry_seconds = (30.0,)
    type_in("create", "slow", receiver.url)
    restarted(served)
    until(lambda: "retrying" in type_in("show", "slow").out)
    told = " ".join(type_in("show", "slow").out.split())
    assert "slow · retrying" in told
    assert "the oldest it answered 500; tried again" in told
    assert "told of every event signed no" in told
    told = " ".join(type_in("show", "ops").out.split())
    assert "told of Reboot signed yes given up after 7 tries, or 1 minute" in told


def test_a_secret_is_kept_in_a_new_file(receiver, type_in, tmp_path):
    """For its owner only; where a webhook is refused there is no file, nor the other way round."""
    file = tmp_path / "secret.txt"
    words = ("create", "ops", receiver.url, "--output", str(file))
    assert type_in(*words).code == exits.WRONG_USAGE
    receiver.agrees = lambda _: (200, {}, b"")
    assert type_in(*words, "--signed").code == exits.REFUSED
    assert not file.exists()
    assert type_in("show", "ops").code == exits.NOT_FOUND
    receiver.agrees = lambda _: (200, {"WebHook-Allowed-Origin": "*"}, b"")
    made = type_in(*words, "--signed")
    secret = file.read_text()
    assert secret.startswith("whsec_")
    assert secret.strip() not in made.out + made.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = type_in("create", "other", receiver.url, "--signed", "--output", str(file))
    assert again.code == exits.WRONG_USAGE
    assert "is there already: no webhook is made" in again.err
    assert file.read_text() == secret
    assert type_in("show", "other").code == exits.NOT_FOUND


def test_a_url_with_a_secret_is_read_from_standard_input(receiver, type_in):
    """So it is in no list of processes; what is no line at all makes no webhook."""
    for nothing in ("", "\n"):
        empty = type_in("create", "ops", "-", stdin=nothing)
        assert empty.code == exits.WRONG_USAGE
        assert "Standard input has no URL in its first line." in empty.err
    made = type_in("create", "ops", "-", stdin=f"{receiver.url}?code=abc\nnotes\n")
    assert made.code == exits.DONE, made.err
    assert "code=abc" not in made.out + made.err
    assert receiver.tried[-1].path.endswith("?code=abc")


def test_what_waits_is_no_dead_letter(served, receiver, type_in):
    """Whoever would have it tried again is told that it will be, and when."""
    served.run.delivering.retry_seconds = (30.0,)
    type_in("create", "ops", receiver.url)
    none = type_in("redeliver", "ops")
    assert (none.out, none.err) == ("Tried again: 0\n", "No letter is dead.\n")
    receiver.answers = lambda _: 500
    restarted(served)
    until(lambda: "retrying" in type_in("show", "ops").out)
    waits = type_in("redeliver", "ops")
    assert waits.out == "Tried again: 0\n"
    assert "No letter is dead. 1 waits, the next try " in waits.err


def test_what_is_refused_is_said(receiver, type_in):
    """A receiver that does not agree, a name that nobody has, a word that is none."""
    receiver.agrees = lambda _: (200, {}, b"")
    refused = type_in("create", "ops", receiver.url)
    assert refused.code == exits.REFUSED
    assert "WebHook-Allowed-Origin" in refused.err
    assert type_in("delete", "ops").code == exits.NOT_FOUND
    assert type_in("create", "ops", receiver.url, "--status", "Over").code == exits.WRONG_USAGE
    for option, most in (("--attempts", 30), ("--keep-minutes", 1440)):
        for number in ("0", str(most + 1), "-1", "many"):
            wrong = type_in("create", "ops", receiver.url, f"{option}={number}")
            assert wrong.code == exits.WRONG_USAGE
            assert f"{option}: give a whole number from 1 to {most}, not {number!r}" in wrong.err


def test_only_an_admin_makes_webhooks():
    """Others look, or not even that; and the receiver that agrees later needs no token."""
    store = MemoryStore()
    token = {
        "admin": kept(store, "olga", TokenRole.ADMIN),
        "operator": kept(store, "otto", TokenRole.OPERATOR),
        "limited": kept(store, "lisa", TokenRole.READER, scopes=("vm:db",)),
        "group's": kept(store, "gus", TokenRole.OPERATOR, resource_groups=("sample",)),
    }
    with receiving() as receiver, serving(store, auth=True) as served:
        receiver.agrees = lambda _: (200, {}, b"")
        body = {"name": "ops", "url": receiver.url, "schema": "eventgrid"}

        def ask(who, method, path, body=None):
            return served.call(method, path, body, Authorization=f"Bearer {token[who]}").status

        for who in ("operator", "limited", "group's"):
            assert ask(who, "POST", "/v1/webhooks", body) == 403
        assert receiver.tried == []
        assert ask("admin", "POST", "/v1/webhooks", body) == 200
        assert ask("operator", "GET", "/v1/webhooks/ops") == 200
        # A letter may be about any VM, and a webhook's address is nobody's: not even those that
        # are about his own are shown to who has limits, nor what is counted.
        for who in ("limited", "group's"):
            for path in ("", "/ops", "/ops/dead-letters"):
                assert ask("operator", "GET", f"/v1/webhooks{path}") == 200
                assert ask(who, "GET", f"/v1/webhooks{path}") == 403
            assert ask(who, "GET", "/metrics") == 403
            assert ask(who, "DELETE", "/v1/webhooks/ops") == 403
        for path in ("test", "redeliver"):
            for who in ("operator", "limited", "group's"):
                assert ask(who, "POST", f"/v1/webhooks/ops/{path}", {}) == 403
        assert ask("operator", "DELETE", "/v1/webhooks/ops") == 403
        assert served.get("/v1/webhooks").status == 401
        url = receiver.tried[0].event["data"]["validationUrl"]
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own service
            assert json.load(answer) == {"validated": True}


def test_a_journal_that_is_forgotten_is_made_up_for_by_the_state(served, receiver, hook):
    """Whoever was away for too long is told every event as it is now, with ids that he may know."""
    hook(receiver)
    event = restarted(served)
    first = receiver.next()
    assert served.call("DELETE", "/v1/webhooks/ops").status == 200

    def set_back():
        async def change():
            store = served.run.conductor._store
            (made,) = store.webhooks()
            store._followed[made.webhook.id] = made._replace(cursor=0)
            store._feed_from = served.run.conductor.feed.revision - 1
            served.run.conductor.feed._lines.clear()

        served.inside(change())

    receiver.agrees = lambda _: (200, {}, b"")
    hook(receiver, schema="eventgrid")
    set_back()
    with urllib.request.urlopen(  # noqa: S310 - our own service
        receiver.tried[-1].event["data"]["validationUrl"]
    ):
        pass
    again = receiver.next()
    assert again.properties == first.properties
    assert again.event["id"] == first.event["id"]
    assert again.properties["EventId"] == event.lower()
