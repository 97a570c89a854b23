"""What webhooks are told, and what becomes of it where a receiver does not take it."""

import base64
import hashlib
import hmac
import logging
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.stores.opening import open_store
from fairnotice.wire.document import rfc1123
from tests.control.calling import restarted, serving
from tests.deliveries.receivers import receiving
from tests.waiting import until

EVENT_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"


def approve(served, event):
    """Let an event start now."""
    assert served.post(f"/v1/events/{event}/approve").status == 202


def statuses(received):
    """What each says of its event."""
    return [one.properties["EventStatus"] for one in received]


@pytest.mark.parametrize("schema", ["cloudevents", "eventgrid"])
def test_a_whole_life_is_told_in_order(served, receiver, hook, schema):
    """Scheduled, Started and Completed, each once, with the same event and ids of their own."""
    hook(receiver, schema=schema)
    event = restarted(served)
    approve(served, event)
    told = receiver.several(3)

    assert statuses(told) == ["Scheduled", "Started", "Completed"]
    assert {one.properties["EventId"] for one in told} == {event.lower()}
    assert len({one.event["id"] for one in told}) == 3
    assert receiver.nothing_within(0.2)
    if schema == "cloudevents":
        assert told[0].headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert {one.event["type"] for one in told} == {EVENT_TYPE}
        assert told[0].event["specversion"] == "1.0"
    else:
        assert told[0].headers["content-type"] == "application/json; charset=utf-8"
        assert told[0].headers["aeg-event-type"] == "Notification"
        assert told[0].body.startswith(b"[")
        assert {one.event["eventType"] for one in told} == {EVENT_TYPE}


def test_a_cancel_and_a_postponement_are_told(served, receiver, hook):
    """Canceled is said outside, though no document shows it; a later NotBefore too."""
    hook(receiver)
    event = restarted(served)
    later = SystemClock().wall().replace(microsecond=0) + timedelta(days=1)
    answer = served.post(f"/v1/events/{event}/postpone", {"not_before": later.isoformat()})
    assert answer.status == 202, answer
    assert served.post(f"/v1/events/{event}/cancel").status == 202
    told = receiver.several(3)

    assert statuses(told) == ["Scheduled", "Scheduled", "Canceled"]
    not_before = [one.properties["NotBefore"] for one in told]
    assert not_before[1:] == [rfc1123(later), ""]
    assert not_before[0] != not_before[1]


def test_only_what_is_wanted_is_told(served, receiver, hook):
    """By status, type, scope and resource group; what is left out means all."""
    hook(receiver, statuses=["Completed"], types=["Reboot"], scopes=["vm:db"])
    with receiving() as group:
        made = hook(group, name="group", resource_groups=["SAMPLE"], statuses=["Canceled"])
        # Without case, as in Azure.
        assert (made["warnings"], made["webhook"]["resource_groups"]) == ([], ["SAMPLE"])
        for vm in ("web-0", "db"):
            approve(served, restarted(served, vm))
        gone = restarted(served, "web-1")
        served.post(f"/v1/events/{gone}/cancel")

        one = receiver.next()
        assert (one.properties["EventStatus"], one.properties["Resources"]) == ("Completed", ["db"])
        assert receiver.nothing_within(0.2)
        assert group.next().properties["Resources"] == ["web-1"]
        assert group.nothing_within(0.1)


def test_it_is_tried_again_until_it_is_taken_and_in_order(served, receiver, hook):
    """Each status fails some times: none is lost, and none is told before the one before it."""
    hook(receiver)
    failures = iter([500, 503, 302, 429, 500, 408])
    receiver.answers = lambda _: next(failures, 200)
    approve(served, restarted(served))

    assert statuses(receiver.several(3)) == ["Scheduled", "Started", "Completed"]
    assert len(receiver.tried) == 1 + 6 + 3
    tries = [(one.event["id"], one.status) for one in receiver.tried[1:]]
    assert len({id_ for id_, _ in tries}) == 3


def test_a_redirect_is_not_followed(served, receiver, hook):
    """It is a failure like others, and the place it names hears nothing."""
    with receiving() as other:
        hook(receiver)
        receiver.answers = lambda _: (307, {"Location": other.url}, b"")
        restarted(served)
        until(lambda: len(receiver.tried) > 3)
        assert other.tried == []


@pytest.mark.parametrize("trouble", ["hangs", "garbage", "gone", "refused"])
def test_one_that_is_in_trouble_stalls_nobody_else(served, receiver, hook, trouble):
    """Others are told at once, commands are answered at once, and then it is told as well."""
    with receiving() as sound:
        hook(sound, name="sound")
        if trouble == "gone":
            with receiving() as gone:
                hook(gone)
        else:
            hook(receiver)
        if trouble == "hangs":
            receiver.hangs.set()
        elif trouble == "garbage":
            receiver.garbage = True
        elif trouble == "refused":
            receiver.answers = lambda _: 500
        approve(served, restarted(served))
        assert statuses(sound.several(3)) == ["Scheduled", "Started", "Completed"]
        shown = served.get("/v1/webhooks/ops").json
        assert shown["waiting"] == 3
        if trouble == "gone":
            until(lambda: served.get("/v1/webhooks/ops").json["error"] == "nobody listens there")
            assert served.get("/v1/webhooks/ops").json["state"] == "retrying"
            return
        receiver.hangs.clear()
        receiver.garbage = False
        receiver.answers = lambda _: 200
        assert statuses(receiver.several(3)) == ["Scheduled", "Started", "Completed"]
        until(lambda: served.get("/v1/webhooks/ops").json["state"] == "delivering")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_what_will_never_be_taken_is_a_dead_letter_at_once(served, receiver, hook, status):
    """And is delivered when somebody asks for it, after the receiver was mended."""
    hook(receiver)
    receiver.answers = lambda _: status
    event = restarted(served)
    path = "/v1/webhooks/ops/dead-letters"
    until(lambda: served.get(path).json["items"])
    (letter,) = served.get(path).json["items"]
    assert (letter["event"], letter["status"], letter["attempts"]) == (event, "Scheduled", 1)
    assert f"it answered {status}; given up at once" in letter["error"]
    properties = letter["content"]["data"]["resourceInfo"]["properties"]
    assert properties["EventId"] == event.lower()

    receiver.answers = lambda _: 200
    wrong = served.post("/v1/webhooks/ops/redeliver", {"ids": ["another"]})
    assert (wrong.status, wrong.json["detail"]) == (404, "ops has no dead letter another.")
    some = served.post("/v1/webhooks/ops/redeliver", {"ids": [letter["id"], "another"]})
    assert some.status == 404
    assert receiver.nothing_within(0.1)
    assert served.post("/v1/webhooks/ops/redeliver").json == {"count": 1}
    assert receiver.next().event["id"] == letter["id"]
    until(lambda: served.get(path).json["items"] == [])


def test_letters_that_are_tried_again_come_in_the_order_of_their_event(served, receiver, hook):
    """Among themselves; one that is refused once more is dead once more."""
    hook(receiver)
    receiver.answers = lambda _: 404
    approve(served, restarted(served))
    until(lambda: served.get("/v1/webhooks/ops").json["dead_letters"] == 3)
    letters = served.get("/v1/webhooks/ops/dead-letters").json["items"]
    # Named in another order, and the receiver is not mended yet.
    ids = {"ids": [one["id"] for one in reversed(letters)]}
    assert served.post("/v1/webhooks/ops/redeliver", ids).json == {"count": 3}
    until(lambda: len(receiver.tried) == 1 + 3 + 3)
    until(lambda: served.get("/v1/webhooks/ops").json["dead_letters"] == 3)
    receiver.answers = lambda _: 200
    assert served.post("/v1/webhooks/ops/redeliver", ids).json == {"count": 3}
    assert statuses(receiver.several(3)) == ["Scheduled", "Started", "Completed"]
    assert statuses(receiver.tried[4:7]) == ["Scheduled", "Started", "Completed"]


def test_it_is_given_up_after_so_many_tries_and_the_rest_goes_on(served, receiver, hook):
    """A letter that nobody takes does not keep what comes after it for ever."""
    hook(receiver, attempts_max=3)
    receiver.answers = lambda asked: 500 if asked.properties["EventStatus"] == "Started" else 200
    approve(served, restarted(served))

    assert statuses(receiver.several(2)) == ["Scheduled", "Completed"]
    until(lambda: served.get("/v1/webhooks/ops").json["dead_letters"] == 1)
    (letter,) = served.get("/v1/webhooks/ops/dead-letters").json["items"]
    assert letter["attempts"] == 3
    assert "given up after 3 tries" in letter["error"]


def test_deliveries_are_signed_and_the_secret_is_told_once(served, receiver, hook):
    """By the rules of Standard Webhooks; neither it nor what is in the query is shown again."""
    receiver.url += "?code=SESAME"
    made = hook(receiver, signed=True)
    restarted(served)
    one = receiver.next()

    assert one.path == "/in?code=SESAME"
    key = base64.b64decode(made["secret"].removeprefix("whsec_"))
    signed = f"{one.headers['webhook-id']}.{one.headers['webhook-timestamp']}.".encode() + one.body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert one.headers["webhook-signature"] == f"v1,{digest}"
    assert one.headers["webhook-id"] == one.event["id"]
    for path in ("/v1/webhooks", "/v1/webhooks/ops"):
        said = served.get(path).body.decode()
        assert made["secret"] not in said
        assert "SESAME" not in said


def test_a_secret_is_neither_in_a_log_nor_in_a_letter(served, receiver, hook, caplog):
    """Whatever goes wrong: a try that fails, a letter given up, a test, a name that is taken."""
    caplog.set_level(logging.DEBUG)
    receiver.url += "?code=SESAME"
    secret = hook(receiver, signed=True, attempts_max=2)["secret"]
    receiver.answers = lambda _: 500
    restarted(served)
    until(lambda: served.get("/v1/webhooks/ops").json["dead_letters"] == 1)
    said = [
        served.post("/v1/webhooks", {"name": "ops", "url": receiver.url}).body,
        served.post("/v1/webhooks", {"name": "b", "url": "https://127.0.0.1:1/?code=SESAME"}).body,
        served.post("/v1/webhooks", {"name": "b", "url": "ftp://127.0.0.1/?code=SESAME"}).body,
        served.post("/v1/webhooks/ops/test").body,
        served.get("/v1/webhooks/ops/dead-letters").body,
        served.get("/v1/audit").body,
        served.get("/metrics").body,
        served.call("DELETE", "/v1/webhooks/ops").body,
        caplog.text.encode(),
    ]
    assert "was not told that event" in caplog.text
    for one in said:
        assert b"SESAME" not in one
        assert secret.encode() not in one


def test_a_test_is_sent_once_and_says_what_came_of_it(served, receiver, hook):
    """It is no event, and nothing waits afterwards."""
    hook(receiver)
    answer = served.post("/v1/webhooks/ops/test")
    assert answer.json == {"taken": True, "status": 200, "error": ""}
    assert receiver.next().properties["Description"].startswith("A test of this webhook")
    receiver.answers = lambda _: 500
    failed = served.post("/v1/webhooks/ops/test").json
    assert failed == {"taken": False, "status": 500, "error": "it answered 500"}
    assert served.get("/v1/webhooks/ops").json["waiting"] == 0


def test_one_that_is_deleted_is_told_nothing_more(served, receiver, hook):
    """What waits for it is forgotten, and its name may be given again."""
    hook(receiver)
    receiver.answers = lambda _: 500
    restarted(served)
    until(lambda: len(receiver.tried) > 2)
    gone = served.call("DELETE", "/v1/webhooks/ops")
    assert (gone.status, gone.json["waiting"]) == (200, 1)
    receiver.answers = lambda _: 200
    assert receiver.nothing_within(0.3)
    assert served.get("/v1/webhooks/ops").status == 404
    hook(receiver)
    assert served.get("/v1/webhooks").json["items"][0]["waiting"] == 0


def test_it_is_counted(served, receiver, hook):
    """What was delivered, what failed, what waits: by webhook."""
    hook(receiver)
    failures = iter([500])
    receiver.answers = lambda _: next(failures, 200)
    restarted(served)
    receiver.next()

    def told():
        text = served.get("/metrics").body.decode()
        return 'fairnotice_webhook_tries_total{webhook="ops",outcome="delivered"} 1' in text

    until(told)
    text = served.get("/metrics").body.decode()
    assert 'fairnotice_webhook_tries_total{webhook="ops",outcome="failed"} 1' in text
    assert 'fairnotice_webhook_waiting{webhook="ops"} 0' in text


def shown_of(served, name):
    """What the metrics say of a webhook."""
    lines = served.get("/metrics").body.decode().splitlines()
    return [line for line in lines if f'webhook="{name}"' in line]


def test_one_that_is_deleted_leaves_the_metrics(served, receiver, hook):
    """Others stay; and one that is made with its name begins to count anew."""
    hook(receiver)
    with receiving() as other:
        hook(other, name="other")
        restarted(served)
        other.next()
        until(lambda: any(line.endswith(" 1") for line in shown_of(served, "ops")))
        served.call("DELETE", "/v1/webhooks/ops")
        until(lambda: not shown_of(served, "ops"))
        hook(receiver)
        until(lambda: shown_of(served, "ops"))
        counted = [line for line in shown_of(served, "ops") if "_total" in line]
        assert [line.split()[-1] for line in counted] == ["0"] * len(counted)
        assert any(line.endswith('"delivered"} 1') for line in shown_of(served, "other"))


def dead_letters_shown(served, count):
    """Wait until the metrics say that there are so many."""
    until(
        lambda: (
            f'fairnotice_webhook_dead_letters{{webhook="ops"}} {count}' in shown_of(served, "ops")
        )
    )


def test_what_was_given_up_is_shown_after_a_start_and_until_it_is_taken(tmp_path, receiver):
    """A counter begins anew with the process, and what it began with is no increase."""
    url = f"sqlite:{tmp_path}/it.db"
    receiver.answers = lambda _: 400
    with serving(open_store(url)) as served:
        body = {"name": "ops", "url": receiver.url, "statuses": ["Scheduled"]}
        served.post("/v1/webhooks", body)
        dead_letters_shown(served, 0)
        event = restarted(served)
        dead_letters_shown(served, 1)
        served.post(f"/v1/events/{event}/cancel")
    with serving(open_store(url)) as served:
        dead_letters_shown(served, 1)
        assert not any(line.endswith('"dead"} 1') for line in shown_of(served, "ops"))
        receiver.answers = lambda _: 200
        served.post("/v1/webhooks/ops/redeliver", {})
        dead_letters_shown(served, 0)


def test_what_went_by_its_age_is_not_shown_for_long(served, receiver, hook, monkeypatch):
    """Nobody says so who delivers: they are counted now and then."""
    monkeypatch.setattr("fairnotice.deliveries.courier.COUNT_SECONDS", 0.1)
    hook(receiver)
    receiver.answers = lambda _: 400
    restarted(served)
    dead_letters_shown(served, 1)

    async def forget():
        served.run.conductor._store.forget_dead_letters(datetime.max.replace(tzinfo=UTC))

    served.inside(forget())
    dead_letters_shown(served, 0)


def test_of_many_dead_letters_the_oldest_go(served, receiver, hook, monkeypatch, caplog):
    """So many are kept; how many went is counted and said."""
    monkeypatch.setattr("fairnotice.deliveries.courier.DEAD_MAX", 3)
    monkeypatch.setattr("fairnotice.deliveries.courier.DEAD_LOOK_EVERY", 1)
    hook(receiver, statuses=["Scheduled"])
    receiver.answers = lambda _: 400
    path = "/v1/webhooks/ops/dead-letters"
    letters = []
    for number in range(1, 6):
        letters.append(restarted(served))
        served.post(f"/v1/events/{letters[-1]}/cancel")
        until(lambda n=number: len(receiver.tried) == 1 + n)
        until(lambda: served.get("/v1/webhooks/ops").json["waiting"] == 0)
    assert [one["event"] for one in served.get(path).json["items"]] == letters[2:]
    forgotten = 'fairnotice_webhook_dead_letters_forgotten_total{webhook="ops"} 2'
    assert forgotten in shown_of(served, "ops")
    assert 'fairnotice_webhook_dead_letters{webhook="ops"} 3' in shown_of(served, "ops")
    said = [one.getMessage() for one in caplog.records if "forgotten" in one.getMessage()]
    assert said == ["the 1 oldest dead letters of ops are forgotten: no more than 3 are kept"] * 2


def test_what_nobody_takes_waits_in_the_journal(monkeypatch):
    """So many wait at hand and no more; all of it is told in the end."""
    monkeypatch.setattr("fairnotice.deliveries.courier.WAITING_MAX", 4)
    monkeypatch.setattr("fairnotice.deliveries.queueing.PAGE_LINES", 3)
    with serving() as served, receiving() as receiver:
        served.run.delivering.retry_seconds = (0.02,)
        receiver.answers = lambda _: 500
        served.post("/v1/webhooks", {"name": "ops", "url": receiver.url})
        events = [restarted(served, vm) for vm in ("web-0", "web-1", "db") for _ in range(4)]
        until(lambda: len(receiver.tried) > 20)
        assert served.get("/v1/webhooks/ops").json["waiting"] <= 4 + 3
        receiver.answers = lambda _: 200
        told = {one.properties["EventId"] for one in receiver.several(12)}
        assert told == {event.lower() for event in events}
