"""Who may do what: every address for every role, and nobody learns what is not his."""

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest

from fairnotice.clock import SystemClock
from fairnotice.control import audits
from fairnotice.control.auth import caller_of
from fairnotice.control.openapi import openapi
from fairnotice.control.route import Route
from fairnotice.control.routes import ROUTES
from fairnotice.control.tokens import Bearer, Tokens, Wanted, make
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import TokenRole
from tests.control.calling import serving

DOCUMENT = json.loads(openapi(ROUTES))
NOW = SystemClock().wall()
OWN = ("web-0", "web-1", "web-2")
SCOPE = "availability-set:web"
ROLES = ("reader", "operator", "admin")
# Who may ask, by what an address is about and whether something is changed there: said here once
# more and not read from the table, so that a new address needs somebody who thinks of it.
LOOK_AND_CHANGE = {
    "audit": ("admin", "admin"),
    "events": ("reader", "operator"),
    "faults": ("reader", "operator"),
    "feed": ("reader", None),
    "fleet": ("reader", "operator"),
    "nodes": ("reader", "operator"),
    "operations": ("reader", "operator"),
    "rollouts": ("reader", "operator"),
    "scale-sets": ("reader", "operator"),
    "scopes": ("reader", "operator"),
    "tokens": ("admin", "admin"),
    "vms": ("reader", "operator"),
}
# What a token with limits may ask for at all.
FOR_LIMITED = ("events", "operations", "scale-sets", "scopes", "vms")


def head(path):
    """What an address is about: the word behind /v1/."""
    return path.split("/")[2].partition(":")[0]


def needed(method, path):
    """The least role that may ask there; a new kind of address is a KeyError here."""
    look, change = LOOK_AND_CHANGE[head(path)]
    return look if method == "get" or path == "/v1/fleet/difference" else change


def operations():
    """Every address and method of the document."""
    return [(method, path) for path, one in DOCUMENT["paths"].items() for method in one]


def url_of(path, name="nobody"):
    """An address that can be asked, and at which nothing goes on for ever."""
    return "/v1/feed?after=x" if path == "/v1/feed" else path.replace("{name}", name)


def kept(store, name, role="operator", now=NOW, **more):
    """A token straight in the store: its text."""
    made = make(Wanted(name, TokenRole(role), **more), "test", now)
    assert store.add_token(made.token)
    return made.text


class Bearers:
    """A service, and somebody of each kind who asks it."""

    def __init__(self, served, store):
        self.served = served
        self.store = store
        self.texts = {role: kept(store, role + "-1", role) for role in ROLES}
        self.texts["endpoint"] = kept(store, "endpoint-1", "endpoint", node="node-0")
        self.texts["limited"] = kept(store, "user-1", scopes=(SCOPE,))
        self.texts["limited reader"] = kept(store, "user-2", "reader", scopes=(SCOPE,))
        self.texts["expired"] = kept(
            store, "late", "admin", NOW - timedelta(days=2), expires_days=1
        )
        revoked = make(Wanted("gone", TokenRole.ADMIN), "test", NOW)
        store.add_token(revoked.token)
        store.revoke_token(revoked.token.id, NOW)
        self.texts["revoked"] = revoked.text
        self.texts["unknown"] = make(Wanted("nobody", TokenRole.ADMIN), "test", NOW).text
        self.texts["wrong"] = self.texts["admin"][:-2] + "zz"
        self.texts["malformed"] = "fairnotice_1_2"

    def ask(self, who, method, path, body=None, **headers):
        """One request with the token of this kind; None: without."""
        if who is not None:
            headers["Authorization"] = f"Bearer {self.texts[who]}"
        return self.served.call(method.upper(), path, body, **headers)


@pytest.fixture(scope="module")
def asking():
    """One service for the tests that leave it as it was."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        yield Bearers(served, store)


STRANGERS = (None, "malformed", "unknown", "wrong", "expired", "revoked")


# ---- Every address, every role ----


def test_every_address_is_for_its_role_and_larger_ones(asking):
    """And is refused to smaller ones, to endpoints, and to strangers; before a body is read."""
    wrong = []
    for method, path in operations():
        least = ROLES.index(needed(method, path))
        for who in (*ROLES, "endpoint", "limited", "limited reader"):
            answer = asking.ask(who, method, url_of(path), None if method == "get" else b"{")
            role = {"limited": "operator", "limited reader": "reader"}.get(who, who)
            may = role in ROLES and ROLES.index(role) >= least
            if who.startswith("limited"):
                # Nobody is called so; and of a list everybody is shown his own.
                may = may and head(path) in FOR_LIMITED and "{name}" not in path
            if (answer.status in (401, 403)) == may:
                wrong.append((who, method, path, answer.status))
    assert wrong == []


def test_a_stranger_is_told_the_same_everywhere(asking):
    """Whatever is wrong with his token, and whatever he asks for: byte for byte."""
    told = set()
    for method, path in [*operations(), ("get", "/nothing"), ("get", "/metrics")]:
        strangers = STRANGERS if path in ("/v1/vms", "/v1/vms/{name}", "/nothing") else (None,)
        for who in strangers:
            answer = asking.ask(who, method, url_of(path, "web-0"))
            assert answer.headers["www-authenticate"].startswith("Bearer")
            told.add((answer.status, answer.headers["content-type"], answer.body))
    assert len(told) == 1
    assert told.pop()[0] == 401


def test_two_tokens_at_once_are_none(asking):
    """Which of them counts, somebody else might see differently; and a password is none."""
    connection = asking.served.connection()
    connection.putrequest("GET", "/v1/vms")
    for who in ("reader", "admin"):
        connection.putheader("Authorization", f"Bearer {asking.texts[who]}")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()
    basic = asking.served.get("/v1/vms", Authorization=f"Basic {asking.texts['admin']}")
    assert basic.status == 401


def test_a_route_without_a_rule_is_no_route():
    """Who adds one and forgets who may ask there cannot even import it."""
    with pytest.raises(TypeError, match="needs"):
        Route("GET", "/v1/planted", "Planted.", lambda call: {}, dict)
    with pytest.raises(KeyError):
        needed("get", "/v1/planted")


def test_the_document_says_which_role_is_needed():
    """As it is held above."""
    for method, path in operations():
        said = DOCUMENT["paths"][path][method]["x-fairnotice-role"]
        assert said == needed(method, path), path


def test_what_is_open_says_little(asking):
    """Whether somebody is there, and ready; where and on what is for those with a token."""
    for who in (*STRANGERS, "endpoint"):
        assert asking.ask(who, "get", "/healthz").json == {"alive": True}
        assert {name for name, said in asking.ask(who, "get", "/readyz").json.items() if said} == {
            "ready"
        }
    assert asking.ask("reader", "get", "/readyz").json["metadata"]
    assert asking.ask("reader", "get", "/metrics").status == 200
    assert asking.ask("limited", "get", "/metrics").status == 403
    assert asking.ask("limited", "get", "/v1/openapi.json").status == 200


def test_an_endpoint_is_good_for_its_node_only():
    """Not for another's, nor is anybody else for its."""
    made = make(Wanted("e", TokenRole.ENDPOINT, node="node-0"), "test", NOW)
    caller = caller_of(Bearer(made.token))
    assert caller.may(TokenRole.ENDPOINT, "node-0")
    assert not caller.may(TokenRole.ENDPOINT, "node-1")
    assert not caller.may(TokenRole.READER, "node-0")
    admin = caller_of(Bearer(make(Wanted("a", TokenRole.ADMIN), "test", NOW).token))
    assert not admin.may(TokenRole.ENDPOINT, "node-0")


# ---- Limits ----


def test_existence_is_not_told(asking):
    """What is somebody else's is answered as what is not there, byte for byte."""
    event = asking.ask("operator", "post", "/v1/vms/db/restart").json["events"][0]
    others = {
        "vms": "db",
        "scopes": "vm:db",
        "scale-sets": "batch",
        "events": event["id"],
        "operations": event["operation"],
        "nodes": "node-0",
    }
    for method, path in operations():
        name = others.get(head(path))
        if "{name}" in path and name is not None:
            here = asking.ask(
                "limited", method, url_of(path, name), {} if method != "get" else None
            )
            nowhere = asking.ask("limited", method, url_of(path), {} if method != "get" else None)
            assert here.status == 403, path
            assert here.body == nowhere.body, path
    for kind in ("vms", "scopes", "scale-sets", "events", "operations"):
        here, nowhere = (
            asking.ask("limited", "get", f"/v1/{kind}?after={name}").problem
            for name in (others[kind], "nobody")
        )
        assert here["detail"].replace(others[kind], "nobody") == nowhere["detail"]
    assert asking.ask("limited", "post", "/v1/vms:restart", {"vms": ["web-0", "db"]}).status == 403
    assert asking.ask("operator", "get", "/v1/vms/db").json["events"] == [event["id"]]


def test_a_user_sees_his_own(asking):
    """In lists, by name, and in what a VM reads."""

    def names(kind):
        return {one["name"] for one in asking.ask("limited", "get", f"/v1/{kind}").json["items"]}

    assert names("vms") == set(OWN)
    assert names("scopes") == {SCOPE}
    assert names("scale-sets") == set()
    pages = asking.ask("limited", "get", "/v1/vms?limit=2").json
    assert pages["next"] == "web-1"
    assert len(asking.ask("limited", "get", "/v1/vms?after=web-1").json["items"]) == 1
    assert asking.ask("limited", "get", "/v1/vms/web-0/document").status == 200
    assert asking.ask("limited", "get", "/v1/fleet").status == 403


def test_a_user_restarts_his_own_vm_and_no_other():
    """And takes back what he asked for, while others' operations on it are not his to cancel."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        asking.texts["neighbour"] = kept(store, "user-3", scopes=(SCOPE,))
        assert asking.ask("limited", "post", "/v1/vms/db/restart").status == 403
        assert asking.ask("limited reader", "post", "/v1/vms/web-0/restart").status == 403
        events = asking.ask("admin", "get", "/v1/events").json["items"]
        assert events == []
        done = asking.ask("limited", "post", "/v1/vms/web-0/restart", Idempotency_Key="k").json
        (operation,) = done["operations"]
        shown = asking.ask("limited", "get", f"/v1/operations/{operation}").json
        assert (shown["requested_by"], shown["vms"]) == ("user-1", ["web-0"])
        event = done["events"][0]["id"]
        assert asking.ask("limited reader", "get", f"/v1/events/{event}/history").status == 200
        # The same key of somebody else is another one.
        other = asking.ask("neighbour", "post", "/v1/vms/web-1/restart", Idempotency_Key="k")
        assert other.json["operations"] != [operation]
        refused = asking.ask("neighbour", "post", f"/v1/operations/{operation}/cancel")
        assert refused.status == 403
        assert refused.json["rule"] == 15
        assert asking.ask("limited", "post", f"/v1/events/{event}/cancel").status == 202
        (mine,) = other.json["operations"]
        assert asking.ask("operator", "post", f"/v1/operations/{mine}/cancel").status == 202


def test_a_resource_group_is_a_limit_too(asking):
    """All of the sample is in one group; of another there is nothing."""
    asking.texts["sample"] = kept(asking.store, "user-4", "reader", resource_groups=("sample",))
    asking.texts["empty"] = kept(asking.store, "user-5", "reader", resource_groups=("other",))
    for kind in ("vms", "scopes", "scale-sets"):
        everything = asking.ask("reader", "get", f"/v1/{kind}").json
        assert asking.ask("sample", "get", f"/v1/{kind}").json == everything
        assert asking.ask("empty", "get", f"/v1/{kind}").json["items"] == []


# ---- Tokens ----


def test_a_token_is_made_shown_once_and_revoked(asking):
    """It counts at once, and from its revocation on no more; its secret is nowhere."""
    body = {"name": "Ann", "role": "reader", "expires_days": 1}
    made = asking.ask("admin", "post", "/v1/tokens", body).json
    asking.texts["ann"] = made["secret"]
    assert asking.ask("ann", "get", "/v1/vms").status == 200
    assert (made["token"]["created_by"], made["token"]["name"]) == ("admin-1", "Ann")
    listed = asking.ask("admin", "get", "/v1/tokens").body.decode()
    assert "Ann" in listed
    assert made["secret"] not in listed
    assert made["secret"].rpartition("_")[2] not in str(asking.store.tokens())
    again = asking.ask("admin", "post", "/v1/tokens", {**body, "name": "ann"})
    assert (again.status, again.problem["type"][-7:]) == (422, "invalid")
    assert asking.ask("admin", "post", "/v1/tokens/Ann/revoke").json["revoked_at"]
    assert asking.ask("ann", "get", "/v1/vms").status == 401
    assert asking.ask("admin", "post", "/v1/tokens", body).status == 422
    assert asking.ask("admin", "post", "/v1/tokens/Bob/revoke").status == 404


@pytest.mark.parametrize(
    "more",
    [
        {"role": "endpoint"},
        {"role": "reader", "node": "node-0"},
        {"role": "endpoint", "node": "node-77"},
        {"role": "reader", "scopes": ["availability-set:wed"]},
        {"role": "admin", "scopes": [SCOPE]},
        {"role": "endpoint", "node": "node-0", "resource_groups": ["sample"]},
        {"role": "owner"},
        {"role": "reader", "name": "operator"},
        {"role": "reader", "name": "a b"},
        {"role": "reader", "expires_days": 0},
    ],
)
def test_a_token_that_means_nothing_is_not_made(asking, more):
    """A mistyped scope or node is said, and not found out later."""
    before = asking.store.tokens()
    answer = asking.ask("admin", "post", "/v1/tokens", {"name": "new", **more})
    assert answer.status in (404, 422)
    assert answer.problem
    assert asking.store.tokens() == before


def test_a_name_with_a_new_line_is_none():
    """Names stand in logs."""
    for name in ("a\n", "a\nb", "", "-a", "a" * 65):
        with pytest.raises(UsageError):
            make(Wanted(name, TokenRole.READER), "test", NOW)


def test_a_stream_ends_with_its_token():
    """Whoever follows the feed is not told more than he may know."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        connection = served.connection()
        headers = {"Authorization": f"Bearer {asking.texts['reader']}"}
        connection.request("GET", "/v1/feed", headers=headers)
        feed = connection.getresponse()
        assert json.loads(feed.readline())["revision"] == 1
        assert asking.ask("admin", "post", "/v1/tokens/reader-1/revoke").status == 200
        # To its end, which there would not be otherwise.
        assert feed.read()
        connection.close()


def asked(store):
    """How Tokens asks a store, in a loop of this test's own."""

    def ask(question):
        answer = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(question(store))
        except Unavailable as error:
            answer.set_exception(error)
        return answer

    return ask


class Away(MemoryStore):
    away = False

    def tokens_changed(self):
        if self.away:
            raise Unavailable("away")
        return super().tokens_changed()


def test_tokens_go_on_without_their_store():
    """Those that are known count until they expire, and end what goes on then."""

    async def story():
        store, clock = Away(), ManualClock()
        text = kept(store, "a", now=clock.wall(), expires_days=1)
        tokens = Tokens(asked(store), clock)
        await tokens.look()
        store.away = True
        following = asyncio.ensure_future(tokens.follow())
        await asyncio.sleep(0)
        bearer = await tokens.find(text)
        unknown = make(Wanted("b", TokenRole.READER), "test", clock.wall()).text
        clock.advance(seconds=10)
        assert await tokens.find(text) is bearer
        with pytest.raises(Unavailable):
            await tokens.find(unknown)
        assert not bearer.ended.is_set()
        clock.advance(days=1)
        assert await tokens.find(text) is None
        await bearer.ended.wait()
        following.cancel()

    asyncio.run(story())


# ---- The audit ----


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
        assert lines(asking, f"?since={stranger['at'].replace('+', '%2B')}")[0] == stranger
        asking.ask("operator", "post", "/v1/vms/web-1/stop")
    again = open_store(url)
    assert [line.audited.path for line in again.audit(1)] == ["/v1/vms/web-1/stop"]
    again.close()


def test_what_fails_is_written_down_too(asking, monkeypatch):
    """It may have been done: a fault of ours hides nobody."""

    def planted(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr(asking.served.run.service, "cordon", planted)
    assert asking.ask("operator", "post", "/v1/nodes/node-5/cordon").status == 500
    newest = lines(asking)[0]
    assert (newest["path"], newest["status"]) == ("/v1/nodes/node-5/cordon", 500)


def test_a_scale_set_is_his_whose_are_all_its_groups(asking):
    """By the scopes of a token, or by its resource group."""
    asking.texts["batch"] = kept(asking.store, "user-6", scopes=("scale-set:batch:0", SCOPE))
    found = asking.ask("batch", "get", "/v1/scale-sets").json["items"]
    assert [one["name"] for one in found] == ["batch"]
    wrong = {"terminate_notice_minutes": -1}
    assert asking.ask("batch", "patch", "/v1/scale-sets/batch", wrong).status == 422
    assert asking.ask("batch", "patch", "/v1/scale-sets/spot", wrong).status == 403


def test_a_flood_of_refusals_fills_nothing(monkeypatch):
    """And hides nothing that was done; how many were left out is said."""
    monkeypatch.setattr(audits, "REFUSALS_MAX", 3)
    monkeypatch.setattr(audits, "REFUSALS_A_SECOND", 0.0)
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for _ in range(10):
            asking.ask("wrong", "get", "/v1/vms")
        asking.ask("operator", "post", "/v1/vms/web-0/restart")
        assert [line["status"] for line in lines(asking)] == [202, 401, 401, 401]
        audit = served.run.auth.audits
        monkeypatch.setattr(audits, "REFUSALS_A_SECOND", 1e9)
        audit._refused_at -= 1
        asking.ask("wrong", "get", "/v1/vms")
        assert lines(asking)[0]["left_out"] == 7


def test_the_secret_is_in_no_log(caplog):
    """Nor in what is written down, whoever asks with it and however it ends."""
    caplog.set_level("DEBUG")
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        for who in ("operator", "reader", "revoked"):
            asking.ask(who, "post", "/v1/vms/web-0/restart")
        lines(asking)
        secrets = [text.rpartition("_")[2] for text in asking.texts.values()]
    assert "/v1/vms/web-0/restart: 202, asked by operator-1" in caplog.text
    written = caplog.text + str(msgspec.to_builtins(store.audit(100)))
    assert [one for one in secrets if len(one) > 10 and one in written] == []
