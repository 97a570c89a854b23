"""Who may do what: every address for every role, and nobody learns what is not his."""

import pytest

from fairnotice.arm.route import ArmRoute
from fairnotice.arm.routes import ROUTES
from fairnotice.stores.memory import MemoryStore
from tests.arm.calling import COMPUTE, SUBSCRIPTION, asked, operation
from tests.control.bearers import ROLES, STRANGERS, Bearers, kept
from tests.waiting import until

NAMES = {
    "{subscription}": SUBSCRIPTION.rpartition("/")[2],
    "{group}": "sample",
    "{location}": "local",
    "{operation}": "nothing",
    "{vm}": "nobody",
    "{scale_set}": "nobody",
    "{availability_set}": "nobody",
    "{instance}": "0",
    "{kind}": "virtualMachines",
    "{resource}": "nobody",
    "{event}": "nothing",
    "{provider}": "Microsoft.Compute",
}
# Who may look and who may change, by the last word of an address that is fixed: said here once more
# and not read from the table, so that a new address needs somebody who thinks of it.
LOOKS = {"GET": "reader", "HEAD": "reader"}
CHANGES = {"POST": "operator", "PUT": "operator", "PATCH": "operator", "DELETE": "operator"}
KINDS = ("virtualMachines", "virtualMachineScaleSets", "availabilitySets")
# Lists of which everybody is shown his own, whatever he is limited to.
LISTS = {
    "/subscriptions",
    "/subscriptions/{subscription}",
    "/tenants",
    "/subscriptions/{subscription}/locations",
    "/subscriptions/{subscription}/providers",
    "/subscriptions/{subscription}/providers/{provider}",
    "/subscriptions/{subscription}/resourceGroups",
    "/subscriptions/{subscription}/resourceGroups/{group}",
    *(
        f"/subscriptions/{{subscription}}{group}/providers/Microsoft.Compute/{what}"
        for group in ("", "/resourceGroups/{group}")
        for what in KINDS
    ),
}
# Where each event of the body is looked at by itself.
ONE_BY_ONE = ("/scheduledevents",)


def url_of(path):
    """An address that can be asked."""
    for name, value in NAMES.items():
        path = path.replace(name, value)
    assert "{" not in path
    return path


def test_every_address_is_for_its_role_and_larger_ones(gated):
    """And is refused to smaller ones, to endpoints, and to strangers."""
    wrong = []
    for route in ROUTES:
        least = ROLES.index((LOOKS | CHANGES)[route.method])
        for who in (*ROLES, "endpoint", "limited", "limited reader"):
            answer = gated.ask(who, route.method, url_of(route.path), {})
            role = {"limited": "operator", "limited reader": "reader"}.get(who, who)
            may = role in ROLES and ROLES.index(role) >= least
            if who.startswith("limited") and not route.path.endswith(ONE_BY_ONE):
                may = may and route.path in LISTS
            if (answer.status in (401, 403)) == may:
                wrong.append((who, route.method, route.path, answer.status))
    assert wrong == []


def test_a_stranger_is_told_the_same_everywhere(gated):
    """Expired, forged, revoked or none: 401, byte for byte."""
    told = set()
    for route in ROUTES:
        for who in STRANGERS if route.path.endswith("restart") else (None,):
            answer = gated.ask(who, route.method, url_of(route.path))
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.status == 401
            # An answer to HEAD has no body.
            if route.method != "HEAD":
                told.add(answer.body)
    assert len(told) == 1
    assert b"InvalidAuthenticationToken" in told.pop()


def test_a_reader_may_not_restart(gated):
    """403, with Azure's code; nothing is scheduled."""
    path = f"{COMPUTE}/virtualMachines/web-0/restart"
    answer = gated.ask("reader", "post", path)
    assert (answer.status, answer.json["error"]["code"]) == (403, "AuthorizationFailed")
    assert gated.served.events("web-0") == []


def test_limits_are_obeyed(gated):
    """Of lists everybody is shown his own; what is not his is as if it were not there."""
    vms = f"{COMPUTE}/virtualMachines"
    shown = gated.ask("limited", "get", vms).json["value"]
    assert [one["name"] for one in shown] == ["web-0", "web-1", "web-2"]
    sets = f"{COMPUTE}/virtualMachineScaleSets"
    assert gated.ask("limited", "get", sets).json["value"] == []
    assert gated.ask("limited", "get", f"{vms}/web-1").status == 200


# Of each address, that of a thing somewhere else and that of nothing.
HIDDEN_AND_NOTHING = [
    *(
        (method, f"virtualMachines/db{word}", f"virtualMachines/nobody{word}")
        for method, word in (("GET", ""), ("DELETE", ""), ("PUT", ""), ("POST", "/restart"))
    ),
    *(
        (method, f"virtualMachineScaleSets/batch{word}", f"virtualMachineScaleSets/nobody{word}")
        for method, word in (
            ("GET", ""),
            ("GET", "/virtualMachines"),
            ("GET", "/virtualMachines/0"),
            ("PUT", ""),
            ("DELETE", ""),
            ("POST", "/delete"),
        )
    ),
    ("PUT", "availabilitySets/web", "availabilitySets/nobody"),
    ("DELETE", "availabilitySets/web", "availabilitySets/nobody"),
]


def test_what_is_hidden_and_what_is_not_there_are_told_alike():
    """Whoever may see only a part learns nothing of the rest, whichever way he asks for it."""
    store = MemoryStore()
    with asked(store, auth=True) as arm:
        bearers = Bearers(arm, store)
        bearers.texts["other"] = kept(store, "other", resource_groups=("elsewhere",))
        bearers.ask("operator", "post", f"{COMPUTE}/virtualMachines/db/restart")
        (event,) = arm.events("db")
        events = f"{COMPUTE}/virtualMachines/db/providers/Microsoft.Maintenance/scheduledevents"

        def told(method, *paths, bodies=({},)):
            answers = [
                bearers.ask("other", method, path, body) for path in paths for body in bodies
            ]
            return {(one.status, one.body) for one in answers}

        for method, *paths in HIDDEN_AND_NOTHING:
            found = told(method, *(f"{COMPUTE}/{path}" for path in paths))
            assert [status for status, _ in found] == [403], (method, paths)
        ids = (event["EventId"], "nothing")
        assert len(told("POST", *(f"{events}/{one}/acknowledge" for one in ids))) == 1
        assert len(told("POST", events, bodies=[{"value": [one]} for one in ids])) == 1
        for what in ("", *(f"/providers/Microsoft.Compute/{one}" for one in KINDS)):
            groups = [
                f"{SUBSCRIPTION}/resourceGroups/{name}{what}" for name in ("sample", "simple")
            ]
            found = {
                (status, body.replace(b"simple", b"sample"))
                for status, body in told("GET", *groups)
            }
            assert [status for status, _ in found] == [404], what
        assert arm.fleet.vms["db"]


def test_a_repeat_of_a_delete_is_for_who_asked_for_it():
    """Though what he may touch is gone by then; to anybody else it says no more than before."""
    store = MemoryStore()
    with asked(store, auth=True) as arm:
        bearers = Bearers(arm, store)
        bearers.texts["mine"] = kept(store, "mine", resource_groups=("sample",))
        path = f"{COMPUTE}/virtualMachines/db"
        first = bearers.ask("mine", "delete", path, x_ms_client_request_id="1")
        until(lambda: "db" not in arm.fleet.vms)
        again = bearers.ask("mine", "delete", path, x_ms_client_request_id="1")
        assert (first.status, again.status) == (202, 202)
        assert operation(again, "location") == operation(first, "location")
        told = {
            bearers.ask(who, "delete", path, x_ms_client_request_id=key).status
            for who, key in (("limited", "1"), ("limited", "2"), ("mine", "2"))
        }
        assert told == {403}


def test_a_token_of_a_resource_group_and_the_audit():
    """It reaches all of its group, and what it asks for is written down as the native API does."""
    store = MemoryStore()
    with asked(store, auth=True) as arm:
        bearers = Bearers(arm, store)
        bearers.texts["mine"] = kept(store, "mine", resource_groups=("sample",))
        bearers.texts["other"] = kept(store, "other", resource_groups=("elsewhere",))
        path = f"{COMPUTE}/virtualMachines/web-0/restart"
        assert bearers.ask("other", "post", path).status == 403
        groups = bearers.ask("other", "get", f"{SUBSCRIPTION}/resourceGroups")
        assert groups.json["value"] == []
        answer = bearers.ask("mine", "post", path)
        assert answer.status == 202
        url = answer.headers["azure-asyncoperation"].partition(str(arm.served.run.arm))[2]
        assert (
            bearers.served.get(
                url, query="", Authorization=f"Bearer {bearers.texts['mine']}"
            ).status
            == 200
        )
        strange = bearers.served.get(
            url, query="", Authorization=f"Bearer {bearers.texts['other']}"
        )
        assert strange.status == 403
        audits = arm.served.run.auth.audits
        arm.served.inside(audits.flush())
        lines = [line.audited for line in store.audit(limit=100)]
        (line,) = [one for one in lines if (one.name, one.method) == ("mine", "POST")]
        assert (line.status, len(line.operations)) == (202, 1)


def test_who_may_touch_a_part_may_follow_what_he_asked_for():
    """Also where it made no operation: an approval of maintenance, and a start of what runs."""
    store = MemoryStore()
    with asked(store, auth=True) as arm:
        bearers = Bearers(arm, store)
        bearers.ask("operator", "post", f"{COMPUTE}/virtualMachines/db/restart")
        admin = f"Bearer {bearers.texts['admin']}"
        arm.served.post("/v1/nodes/node-0/maintain", {"impact": "reboot"}, Authorization=admin)
        (event,) = arm.events("web-0") or arm.events("web-1")
        vm = f"{COMPUTE}/virtualMachines/{event['Resources'][0]}"
        for word in ("start", "performMaintenance"):
            answer = bearers.ask("limited", "post", f"{vm}/{word}")
            assert answer.status == 202, answer
            url = answer.headers["azure-asyncoperation"].partition(str(arm.served.run.arm))[2]
            for who, status in (("limited", 200), ("limited reader", 403)):
                token = f"Bearer {bearers.texts[who]}"
                assert arm.get(url, query="", Authorization=token).status == status


def test_neither_host_nor_anything_else_makes_another_address_of_a_path(gated):
    """What is done is what the audit says."""
    path = f"{COMPUTE}/virtualMachines/web-0/restart?api-version=2024-11-01&"
    for host in (f"localhost{path}", "[", "localhost"):
        answer = gated.ask("operator", "post", "/", Host=host)
        assert (answer.status, answer.json["error"]["code"]) == (404, "NotFound")
    assert gated.served.events("web-0") == []


def test_a_route_without_a_rule_is_no_route():
    """Who adds one and forgets who may ask there cannot even import it."""
    with pytest.raises(TypeError, match="needs"):
        ArmRoute("GET", "/", "", lambda _: None)
