"""Two who write at once: whoever has read what is there no longer is told, and nothing is lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.arm.calling import BATCH, BATCH_0, COMPUTE, DB, WEB, Holding, asked, notice, policy


def test_who_has_read_something_else_is_told(arm):
    """If-Match with an ETag that is no longer so: 412, and nothing is overwritten."""
    etag = arm.get(BATCH).headers["etag"]
    assert arm.call("PUT", BATCH, notice("PT10M"), If_Match=etag).status == 200
    arm.refused(412, "PreconditionFailed", "PUT", BATCH, notice("PT15M"), If_Match=etag)
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    assert arm.call("PUT", BATCH, notice("PT15M"), If_Match="*").status == 200
    arm.refused(412, "PreconditionFailed", "PATCH", BATCH, {"tags": {}}, If_Match='""')
    arm.refused(412, "PreconditionFailed", "PUT", BATCH, {}, If_None_Match="*")
    arm.refused(412, "PreconditionFailed", "PUT", DB, {}, If_None_Match="*")
    arm.refused(412, "PreconditionFailed", "PUT", WEB, {}, If_None_Match="*")
    arm.refused(412, "PreconditionFailed", "PUT", BATCH_0, {}, If_None_Match="*")


def test_one_of_several_etags_will_do(arm):
    """As If-Match may have them; `*` among them is whatever there is."""

    def put(match):
        return arm.call("PUT", DB, {"tags": {"a": match}}, If_Match=match).status

    etag = arm.get(DB).headers["etag"]
    assert put(f'"x", {etag}') == 200
    assert put(f'"x", {etag}') == put('"x","y"') == put('""') == 412
    assert put(f'W/{arm.get(DB).headers["etag"]},"x"') == 200
    assert put('"x", *') == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0])
def test_a_repeat_whose_answer_was_lost_is_not_told_of_itself(arm, method, path):
    """What If-Match names was changed by the first one: 200 again, and nothing is overwritten."""

    def write(tags, key, etag):
        body = {"tags": tags}
        return arm.call(method, path, body, x_ms_client_request_id=key, If_Match=etag).status

    etag = arm.get(path).headers["etag"]
    assert write({"a": "1"}, "7", etag) == write({"a": "1"}, "7", etag) == 200
    # Something else under it, and the same under another, are no repeats.
    assert write({"a": "2"}, "7", etag) == write({"a": "1"}, "8", etag) == 412
    assert write({"a": "3"}, "9", arm.get(path).headers["etag"]) == 200
    assert write({"a": "1"}, "7", etag) == 200
    assert arm.get(path).json["tags"] == {"a": "3"}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0])
def test_a_repeat_does_not_undo_what_others_have_said_since(arm, method, path):
    """By the tool's own retry, without If-Match: tags, automatic approval, terminate notice."""
    mine, others = {"tags": {"by": "me"}}, {"tags": {"by": "others"}}
    if path != BATCH_0:
        mine |= policy(userInitiatedReboot=True)
        others |= policy(userInitiatedReboot=False)
    if path == BATCH:
        mine["properties"] |= notice("PT10M")["properties"]
        others["properties"] |= notice(None, enable=False)["properties"]
    once = {"x_ms_client_request_id": "7"}
    assert arm.call(method, path, mine, **once).status == 200
    since = arm.call(method, path, others).json
    again = arm.call(method, path, mine, **once)
    assert (again.status, again.json) == (200, since)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_who_has_read_another_number_of_instances_is_told(arm, method):
    """Else he would delete those that somebody else has added: 412, and nobody is told to go."""
    read = arm.get(BATCH)
    etag = {"If_Match": read.headers["etag"]}
    assert arm.call("PATCH", BATCH, {"sku": {"capacity": 6}}, **etag).status == 200
    body = {**read.json, "tags": {"mine": "x"}}
    arm.refused(412, "PreconditionFailed", method, BATCH, body, **etag)
    assert arm.events("batch_0") == []
    now = arm.get(BATCH)
    assert (now.json["sku"]["capacity"], now.json["tags"]) == (6, {})
    # And who has read of instances that go since.
    arm.call("DELETE", f"{BATCH}/virtualMachines/0")
    etag = {"If_Match": now.headers["etag"]}
    arm.refused(412, "PreconditionFailed", method, BATCH, now.json, **etag)


def test_of_two_who_scale_what_both_have_read_one_is_told(arm):
    """However close they come: the second is looked at when the first has its instances."""
    etag = arm.get(BATCH).headers["etag"]

    def scale(count):
        return arm.call("PATCH", BATCH, {"sku": {"capacity": count}}, If_Match=etag).status

    with ThreadPoolExecutor(2) as writers:
        told = dict(zip((6, 3), writers.map(scale, (6, 3)), strict=True))
    assert sorted(told.values()) == [200, 412]
    (wanted,) = [count for count, status in told.items() if status == 200]
    assert arm.get(BATCH).json["sku"]["capacity"] == wanted


@pytest.mark.parametrize("match", [True, False])
@pytest.mark.parametrize("capacity", [3, 4, 5])
def test_a_repeat_does_not_undo_what_others_have_scaled_since(arm, match, capacity):
    """By the tool's own retry, whether fewer, as many or more were wanted than there were."""
    once = {"x_ms_client_request_id": "7"}
    once |= {"If_Match": arm.get(BATCH).headers["etag"]} if match else {}
    body = {"sku": {"capacity": capacity}}
    assert arm.call("PATCH", BATCH, body, **once).status == 200
    assert arm.call("PATCH", BATCH, {"sku": {"capacity": 7}}).status == 200
    before = arm.events("batch_0")
    again = arm.call("PATCH", BATCH, body, **once)
    assert (again.status, again.json["sku"]["capacity"]) == (200, 7)
    assert arm.events("batch_0") == before


def test_who_has_not_read_the_tags_of_the_fleet_file_is_told(arm):
    """Declared since: a PUT without them would take them away."""
    read = arm.get(DB)
    fleet = arm.served.get("/v1/fleet").json
    (row,) = [one for one in fleet["vm"] if one["name"] == "db"]
    row["tags"] = {"owner": "bob"}
    assert arm.served.call("PUT", "/v1/fleet", fleet).status == 200
    etag = read.headers["etag"]
    arm.refused(412, "PreconditionFailed", "PUT", DB, read.json, If_Match=etag)
    assert arm.get(DB).json["tags"] == {"owner": "bob"}


def test_what_was_changed_since_it_was_read_is_not_deleted(arm):
    """DELETE with an If-Match that no longer fits: of a VM, and of an instance."""
    for path in (DB, BATCH_0):
        etag = arm.get(path).headers["etag"]
        arm.call("PATCH", path, {"tags": {"keep": "me"}})
        arm.refused(412, "PreconditionFailed", "DELETE", path, If_Match=etag)
    assert not arm.fleet.operations
    nobody = f"{COMPUTE}/virtualMachines/nobody"
    assert arm.call("DELETE", nobody, If_Match=etag).status == 204
    again = {"If_Match": f'"x", {arm.get(DB).headers["etag"]}', "x_ms_client_request_id": "7"}
    assert [arm.call("DELETE", DB, **again).status for _ in range(2)] == [202, 202]
    etag = arm.get(BATCH_0).headers["etag"]
    assert arm.call("DELETE", BATCH_0, If_Match=etag).status == 202


def test_of_two_who_write_at_once_nothing_is_lost():
    """Somebody else's tag lands between the read and the write: 409, and 200 when tried anew."""
    store = Holding()
    with asked(store) as arm:
        first, second = {"tags": {"other": "x"}}, {"tags": {"mine": "x"}}
        with store.holding(arm) as ask:
            other = ask(arm.call, "PATCH", DB, first)
            mine = ask(arm.call, "PATCH", DB, second)
        assert (other.result().status, mine.result().status) == (200, 409)
        assert mine.result().json["error"]["code"] == "Conflict"
        assert arm.get(DB).json["tags"] == {"other": "x"}
        assert arm.call("PATCH", DB, second).status == 200
        assert arm.get(DB).json["tags"] == {"other": "x", "mine": "x"}


@pytest.mark.parametrize(
    ("method", "path", "ids", "status"),
    [
        ("DELETE", DB, None, 204),
        ("DELETE", BATCH_0, None, 204),
        ("POST", f"{BATCH}/delete", ["0", "1"], 400),
        ("POST", f"{BATCH}/delete", ["*"], 202),
    ],
)
def test_what_somebody_else_has_deleted_first_need_not_be_deleted(method, path, ids, status):
    """Found, and gone when the law is asked: as a moment later; of several, those that are left."""
    store = Holding()
    with asked(store) as arm:
        fleet = arm.served.get("/v1/fleet").json
        fleet["vm"] = [one for one in fleet["vm"] if one["name"] not in ("db", "batch_0")]
        body = None if ids is None else {"instanceIds": ids}
        with store.holding(arm) as ask:
            emptied = ask(arm.served.call, "PUT", "/v1/fleet", fleet)
            deleted = ask(arm.call, method, path, body)
        assert emptied.result().status == 200, emptied.result()
        assert deleted.result().status == status, deleted.result()
        going = {name for one in arm.fleet.operations.values() for name in one.vms}
        assert going == ({"batch_1", "batch_2", "batch_3"} if status == 202 else set())


@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0])
def test_what_is_gone_when_it_was_written_is_not_found(path):
    """Taken out of the fleet between the write and the answer: 404."""
    store = Holding()
    with asked(store) as arm:
        fleet = arm.served.get("/v1/fleet").json
        fleet["vm"] = [one for one in fleet["vm"] if one["name"] != "db"]
        fleet["vm"] = [one for one in fleet["vm"] if not {"scale_set", "availability_set"} & {*one}]
        fleet["scale_set"] = fleet["availability_set"] = []
        with store.holding(arm) as ask:
            written = ask(arm.call, "PATCH", path, {"tags": {"a": "b"}})
            emptied = ask(arm.served.call, "PUT", "/v1/fleet", fleet)
        assert emptied.result().status == 200, emptied.result()
        assert written.result().status == 404
        # With the last that was in it, the group is gone too.
        assert written.result().json["error"]["code"] == "ResourceGroupNotFound"
