"""Who asked for what is written down, whatever came of it; a flood of refusals is not."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from fairnotice.control import audits
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from tests.control.bearers import Bearers
from tests.control.calling import PATIENCE_SECONDS, restarted, serving


def lines(asking, query=""):
    """The audit, the newest first, in what is told of each."""
    return asking.ask("admin", "get", f"/v1/audit{query}").json["items"]


def test_what_was_asked_for_is_written_down(tmp_path):
    """Who, from where, what, and what came of it; refusals too; and it outlives the process."""
    url = f"sqlite:{tmp_path / 'fleet.db'}"
    store = open_store(url)
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        accepted = asking.ask("operator", "post", "/v1/vms/web-0/restart").json
        asking.ask("limited", "post", "/v1/vms/db/restart")
        asking.ask(None, "get", "/v1/vms/%0Afaked")
        asking.ask("operator", "get", "/v1/vms")
        stranger, limited, operator = lines(asking)
        assert (operator["name"], operator["path"]) == ("operator-1", "/v1/vms/web-0/restart")
        assert (operator["status"], operator["operations"]) == (202, accepted["operations"])
        assert operator["source"] == "127.0.0.1"
        assert (limited["name"], limited["status"]) == ("user-1", 403)
        assert (stranger["token"], stranger["path"]) == (None, "/v1/vms/%0Afaked")
        assert lines(asking, "?who=user-1") == [limited]
        assert lines(asking, f"?limit=1&after={limited['number']}") == [operator]
        assert stranger in lines(asking, f"?since={stranger['at'].replace('+', '%2B')}")
        asking.ask("operator", "post", "/v1/vms/web-1/stop")
    again = open_store(url)
    assert [line.audited.path for line in again.audit(1)] == ["/v1/vms/web-1/stop"]
    again.close()


def test_a_token_that_counts_no_longer_is_known_by_its_name_to_the_audit_alone():
    """A thief is seen to go on; with the id alone he is nobody; all read the same."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        asking.texts["forged"] = asking.texts["revoked"][:-2] + "zz"
        tried = ("revoked", "expired", "forged", "unknown")
        answers = [asking.ask(who, "get", "/v1/vms") for who in tried]
        told = [(one["name"], one["lapsed"], one["status"]) for one in lines(asking)[::-1]]
        revoked = lines(asking, "?who=gone")
    assert len({answer.body for answer in answers}) == 1
    assert told == [
        ("gone", "revoked", 401),
        ("late", "expired", 401),
        ("", "", 401),
        ("", "", 401),
    ]
    assert [one["lapsed"] for one in revoked] == ["revoked"]


def test_whoever_says_for_whom_he_asks_is_written_down_himself(asking):
    """Anybody can send the header of a control plane that passes on; it hides nobody."""
    for said in ("192.0.2.7", "no\taddress"):
        asking.ask("operator", "post", "/v1/nodes/node-5/cordon", **{"Fairnotice-Passed-On": said})
    wrong, right = lines(asking, "?who=operator-1")[:2]
    assert right["source"] == "192.0.2.7 through 127.0.0.1"
    assert wrong["source"] == "127.0.0.1"


def test_what_only_an_admin_may_read_is_written_down(asking):
    """Whoever takes a backup has everything; who looks at VMs has not."""
    for path in ("/v1/backup", "/v1/tokens", "/v1/audit", "/v1/vms", "/v1/fleet"):
        asking.ask("admin", "get", path)
    told = [line["path"] for line in lines(asking, "?who=admin-1&limit=3")]
    assert told == ["/v1/audit", "/v1/tokens", "/v1/backup"]


def test_what_an_endpoint_approves_is_written_down(asking):
    """The journal says which VM approved; the audit by whose token, and from where."""
    authorization = f"Bearer {asking.texts['operator']}"
    event = restarted(asking.served, "web-0", Authorization=authorization)
    path = "/v1/endpoints/node-0"
    asking.ask("endpoint", "post", f"{path}/report", {})
    body = {"vm": "web-0", "events": [event]}
    assert asking.ask("endpoint", "post", f"{path}/approve", body).status == 200
    (line,) = lines(asking, "?who=endpoint-1")
    assert (line["path"], line["status"]) == (f"{path}/approve", 200)
    assert line["source"] == "127.0.0.1"


def test_what_fails_is_written_down_too(asking, monkeypatch):
    """It may have been done: a fault of ours hides nobody."""

    def planted(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr(asking.served.run.service, "cordon", planted)
    assert asking.ask("operator", "post", "/v1/nodes/node-5/cordon").status == 500
    newest = lines(asking)[0]
    assert (newest["path"], newest["status"]) == ("/v1/nodes/node-5/cordon", 500)


def test_what_is_cut_short_by_an_end_is_not_written_down_as_refused(monkeypatch):
    """It may be done all the same."""
    store = MemoryStore()
    with ThreadPoolExecutor() as threads, serving(store, auth=True) as served:
        asking = Bearers(served, store)
        begun = threading.Event()

        async def without_end(*_, **__):
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(served.run.service, "cordon", without_end)
        threads.submit(asking.ask, "operator", "post", "/v1/nodes/node-5/cordon")
        assert begun.wait(PATIENCE_SECONDS)
    newest = store.audit(1)[0].audited
    assert (newest.path, newest.status) == ("/v1/nodes/node-5/cordon", 503)


def test_a_flood_of_refusals_fills_nothing(monkeypatch):
    """And hides nothing that was done; how many were left out is said."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 3)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for _ in range(10):
            asking.ask("wrong", "get", "/v1/vms")
        asking.ask("operator", "post", "/v1/vms/web-0/restart")
        assert [line["status"] for line in lines(asking)] == [202, 401, 401, 401]
        monkeypatch.setattr(audits, "A_SECOND", 1e9)
        asking.ask("wrong", "get", "/v1/vms")
        assert lines(asking)[0]["left_out"] == 7


def test_strangers_do_not_hide_what_a_token_tries(monkeypatch):
    """Nor does one token hide what another is refused: each has room of its own."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for who in (None, "wrong", "revoked", "reader", "reader", "reader"):
            asking.ask(who, "post", "/v1/vms/web-0/restart")
        asking.ask("limited", "post", "/v1/vms/db/restart")
        told = [(line["name"], line["status"]) for line in lines(asking)]
        assert told == [("user-1", 403), *[("reader-1", 403)] * 2, *[("", 401)] * 2]


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        (None, "/healthz", 405),
        (None, "/v1/webhooks/nobody/validate", 405),
        ("reader", "/nothing", 404),
        ("operator", "/v1/vms/nobody/restart", 404),
    ],
)
def test_a_flood_of_what_comes_to_nothing_fills_nothing(monkeypatch, who, path, status):
    """Whoever asks; and neither what is done nor what is refused meanwhile is left out for it."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for _ in range(5):
            asking.ask(who, "post", path)
        asking.ask(who, "post", "/v1/tokens")
        asking.ask("operator", "post", "/v1/vms/web-0/restart")
        done, refused, *rest = [line["status"] for line in lines(asking)]
        assert done == 202
        assert refused in (401, 403)
        assert rest == [status] * 2


def test_the_secret_is_in_no_log(caplog):
    """Nor in what is written down, whoever asks with it and however it ends."""
    caplog.set_level("DEBUG")
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for who in ("operator", "reader", "revoked"):
            asking.ask(who, "post", "/v1/vms/web-0/restart")
        lines(asking)
        secrets = [text.split("_", 2)[2] for text in asking.texts.values()]
    assert "/v1/vms/web-0/restart: 202, asked by operator-1" in caplog.text
    written = caplog.text + str(msgspec.to_builtins(store.audit(100)))
    assert [one for one in secrets if len(one) > 10 and one in written] == []
