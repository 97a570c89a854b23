"""Who may do what: every address for every role, and nobody learns what is not his."""

import json

import pytest
from starlette.responses import Response
from starlette.routing import Route as Address

from fairnotice.control.auth import caller_of
from fairnotice.control.openapi import openapi
from fairnotice.control.route import Route
from fairnotice.control.routes import ROUTES
from fairnotice.control.tokens import Bearer, Wanted, make
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import Role, TokenRole
from tests.control.bearers import NOW, ROLES, SCOPE, STRANGERS, Bearers, kept
from tests.control.calling import serving

DOCUMENT = json.loads(openapi(ROUTES))
OWN = ("web-0", "web-1", "web-2")
# Who may ask, by what an address is about and whether something is changed there: said here once
# more and not read from the table, so that a new address needs somebody who thinks of it.
LOOK_AND_CHANGE = {
    "audit": ("admin", "admin"),
    "backup": ("admin", None),
    "endpoints": ("reader", "operator"),
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
    "webhooks": ("reader", "admin"),
}
# What a token with limits may ask for at all.
FOR_LIMITED = ("events", "operations", "scale-sets", "scopes", "vms")


def head(path):
    """What an address is about: the word behind /v1/."""
    return path.split("/")[2].partition(":")[0]


def needed(method, path):
    """The least role that may ask there; a new kind of address is a KeyError here."""
    look, change = LOOK_AND_CHANGE[head(path)]
    if head(path) == "endpoints" and (method == "post" or path.endswith("/feed")):
        return "endpoint"
    return look if method == "get" or path == "/v1/fleet/difference" else change


def operations():
    """Every address and method of the document."""
    return [(method, path) for path, one in DOCUMENT["paths"].items() for method in one]


def url_of(path, name="nobody"):
    """An address that can be asked, and at which nothing goes on for ever."""
    return "/v1/feed?after=x" if path == "/v1/feed" else path.replace("{name}", name)


# ---- Every address, every role ----


def test_every_address_is_for_its_role_and_larger_ones(asking):
    """And is refused to smaller ones, to endpoints, and to strangers; before a body is read."""
    wrong = []
    for method, path in operations():
        least = (*ROLES, "endpoint").index(needed(method, path))
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


def test_what_an_endpoint_says_is_its_own(asking):
    """Of its own node it may say everything, of others nothing; nobody else may, for any node."""
    said = [path for method, path in operations() if needed(method, path) == "endpoint"]
    assert len(said) > 4
    for path in said:
        method = "head" if path.endswith("/feed") else "post"
        for who, name in (("endpoint", "node-1"), ("operator", "node-0"), ("admin", "node-0")):
            assert asking.ask(who, method, url_of(path, name), b"{").status == 403, (who, path)
        own = asking.ask("endpoint", method, url_of(path, "node-0"), b"{")
        assert own.status == (200 if method == "head" else 400), path


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


def test_a_page_has_no_token_to_show(asking):
    """Whatever Host and Origin a browser sends: without a token it is 401, and may not be read."""
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8600"):
        for method, path in (("post", "/v1/vms/web-0/restart"), ("get", "/v1/vms")):
            answer = asking.ask(None, method, path, Origin=origin, Cookie="token=x")
            assert answer.status == 401
            assert not [name for name in answer.headers if name.startswith("access-control")]
    asked_first = asking.ask(None, "options", "/v1/vms", Origin="http://evil.example")
    assert asked_first.status == 401
    # With one, it is no matter by which name the control plane is called.
    named = asking.ask("reader", "get", "/v1/vms", Host="cp.example.net")
    assert named.status == 200


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
    for who in (*STRANGERS, "endpoint", "limited"):
        more = {"arm": ""} if who == "limited" else {}
        assert asking.ask(who, "get", "/healthz").json == {"alive": True}
        assert asking.ask(who, "get", "/readyz").json == {"ready": True, **more}
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
    assert caller.requester.role is Role.VM
    admin = caller_of(Bearer(make(Wanted("a", TokenRole.ADMIN), "test", NOW).token))
    assert not admin.may(TokenRole.ENDPOINT, "node-0")


def test_what_other_fronts_have_is_for_somebody_too():
    """Looking is a reader's, anything else an operator's; and neither is a limited token's."""

    async def answer(_):
        return Response("planted")

    def fronts(_):
        return [
            Address("/planted", answer),
            Address("/planted", answer, methods=["POST"]),
        ]

    store = MemoryStore()
    with serving(store, auth=True, fronts=fronts) as served:
        asking = Bearers(served, store)
        asked = {
            who: [asking.ask(who, method, "/planted").status for method in ("get", "post")]
            for who in (None, "endpoint", "limited", "reader", "operator")
        }
    assert asked == {
        None: [401, 401],
        "endpoint": [403, 403],
        "limited": [403, 403],
        "reader": [200, 403],
        "operator": [200, 200],
    }


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


def test_a_user_sees_what_became_of_a_vm_that_he_deleted():
    """The VM is gone, and with it what made the operation his; he asked for it all the same."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        asking.texts["neighbour"] = kept(store, "user-3", scopes=(SCOPE,))
        (operation,) = asking.ask("limited", "post", "/v1/vms/web-0/delete").json["operations"]
        while asking.ask("operator", "get", "/v1/vms/web-0").status != 404:
            pass
        path = f"/v1/operations/{operation}"
        assert asking.ask("limited", "get", path).json["vms"] == ["web-0"]
        assert asking.ask("neighbour", "get", path).status == 403


def test_a_resource_group_is_a_limit_too(asking):
    """All of the sample is in one group, in whatever letters; of another there is nothing."""
    asking.texts["sample"] = kept(asking.store, "user-4", "reader", resource_groups=("Sample",))
    asking.texts["empty"] = kept(asking.store, "user-5", "reader", resource_groups=("other",))
    for kind in ("vms", "scopes", "scale-sets"):
        everything = asking.ask("reader", "get", f"/v1/{kind}").json
        assert asking.ask("sample", "get", f"/v1/{kind}").json == everything
        assert asking.ask("empty", "get", f"/v1/{kind}").json["items"] == []


def test_a_scale_set_is_his_whose_are_all_its_groups(asking):
    """By the scopes of a token, or by its resource group."""
    asking.texts["batch"] = kept(asking.store, "user-6", scopes=("scale-set:batch:0", SCOPE))
    found = asking.ask("batch", "get", "/v1/scale-sets").json["items"]
    assert [one["name"] for one in found] == ["batch"]
    wrong = {"terminate_notice_minutes": -1}
    assert asking.ask("batch", "patch", "/v1/scale-sets/batch", wrong).status == 422
    assert asking.ask("batch", "patch", "/v1/scale-sets/spot", wrong).status == 403
