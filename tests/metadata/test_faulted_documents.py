"""Faults that change the document: what one VM is shown on real sockets, and nobody else."""

import asyncio
import json

import pytest

from fairnotice.engine.commands import Postpone
from fairnotice.metadata.faults import OF_DOCUMENTS, Fault, FaultKind
from tests.engine.story import OPERATOR, WEB
from tests.metadata.faulty import CLOSING, DB, INSTANCE, OTHER_WEB, looks_like, told
from tests.metadata.sockets import ask, last, talk
from tests.metadata.wireless import approval
from tests.waiting import soon

MINUTES = 60
TOGETHER = (FaultKind.TWO_EVENTS, FaultKind.FREEZE_FOR_REBOOT, FaultKind.INCARNATION_RESET)


async def looks(served, source="127.0.0.1", version="2020-07-01"):
    """What a VM is shown: the answer."""
    return await ask(served.port, last(version=version), source=source)


def shown(answer):
    """Its events by type and status."""
    return [(event["EventType"], event["EventStatus"]) for event in answer.events]


@pytest.mark.parametrize("kind", OF_DOCUMENTS)
def test_a_fault_of_documents_is_one_vms_and_gone_when_cleared(kind):
    """Another VM of its scope reads what it always does; the instance document is the same."""

    async def story(served):
        port = served.port
        served.stage.advance(minutes=14.5)
        requests = [(last(), vm) for vm in ("127.0.0.1", OTHER_WEB, DB)] + [(INSTANCE, "127.0.0.1")]
        before = [await talk(port, raw, source=vm) for raw, vm in requests]
        seconds = 5 if kind is FaultKind.SHORT_NOTICE else None
        served.worker.faults.set(Fault(kind, "web-0", seconds))
        while_on = [await talk(port, raw, source=vm) for raw, vm in requests]
        served.worker.faults.clear_all()

        assert while_on[0] != before[0]
        assert while_on[1:] == before[1:]
        assert [await talk(port, raw, source=vm) for raw, vm in requests] == before
        assert served.worker.faults.spoiled == {kind: 1}
        assert served.worker.known, "the fast way is open again"

    told(story)


def test_control_characters_are_raw_bytes_in_descriptions():
    """Not escaped, so no strict parser takes it; versions without Descriptions are spared."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.CONTROL_CHARACTERS))
        body = (await looks(served)).body
        old = await looks(served, version="2019-01-01")

        assert b'"Description":"Virtual\x01 machine is going to be restarted' in body
        assert b'user.\x0b","EventSource"' in body
        with pytest.raises(ValueError, match="control character"):
            json.loads(body)
        assert len(json.loads(body, strict=False)["Events"]) == 1
        assert len(old.events) == 1

    told(story)


def test_short_notice_hides_an_event_until_late():
    """The document changes, and with it number and ETag, when only time has passed."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.SHORT_NOTICE, seconds=5 * MINUTES))
        hidden = await looks(served)
        served.stage.advance(minutes=9)
        still = await looks(served)
        served.stage.report_served()
        assert served.stage.only(WEB).seen == ()
        served.stage.advance(minutes=1)
        seen = await looks(served)
        served.stage.report_served()

        assert (shown(hidden), hidden.body, hidden.etag) == ([], still.body, still.etag)
        assert shown(seen) == [("Reboot", "Scheduled")]
        assert seen.incarnation == hidden.incarnation + 1
        assert seen.etag != hidden.etag
        assert [first.vm for first in served.stage.only(WEB).seen] == ["web-0"]

    told(story)


def test_an_event_that_is_approved_by_another_vm_is_shown_when_it_is_started():
    """Also where it would have been hidden for longer."""

    async def story(served):
        faults = served.worker.faults
        for kind in (FaultKind.SHORT_NOTICE, FaultKind.STRAIGHT_TO_STARTED):
            faults.set(Fault(kind, "web-0"))
        assert shown(await looks(served)) == []
        assert shown(await looks(served, OTHER_WEB)) == [("Reboot", "Scheduled")]
        served.stage.approve("web-1")

        assert shown(await looks(served)) == [("Reboot", "Started")]
        assert faults.spoiled == {FaultKind.SHORT_NOTICE: 1}, "it left the other nothing to hide"

    told(story)


def test_an_event_that_a_fault_hides_can_be_approved():
    """The law answers as for any id that is there."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.STRAIGHT_TO_STARTED))
        approve = approval(served.stage.only(WEB).id, **CLOSING)

        assert (await ask(served.port, approve)).status == 200
        assert shown(await looks(served)) == [("Reboot", "Started")]

    told(story)


def test_canceled_late_is_gone_for_good():
    """From shortly before NotBefore on: when it is postponed, and when it starts after all."""

    async def story(served):
        stage = served.stage
        served.worker.faults.set(Fault(FaultKind.CANCELED_LATE, "web-0", seconds=60))
        before = await looks(served)
        stage.advance(minutes=14)
        gone = await looks(served)
        event = stage.only(WEB)
        later = event.not_before.replace(year=event.not_before.year + 1)
        stage.tell(Postpone(event=event.id, not_before=later, by=OPERATOR))
        postponed = await looks(served)
        stage.approve("web-1")
        started = await looks(served)
        usual = await looks(served, OTHER_WEB)

        assert shown(before) == [("Reboot", "Scheduled")]
        assert (gone.events, gone.incarnation) == ([], before.incarnation + 1)
        assert postponed.body == started.body == gone.body
        assert shown(usual) == [("Reboot", "Started")], "the law has not canceled it"

    told(story)


def test_what_started_before_it_could_be_canceled_late_stays():
    """An event that was approved in time is no longer canceled, however late it is."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.CANCELED_LATE, seconds=60))
        served.stage.advance(minutes=13)
        served.stage.approve("web-0")
        served.stage.advance(minutes=1.5)

        assert shown(await looks(served)) == [("Reboot", "Started")]

    told(story)


def test_a_failure_that_was_never_announced_is_not_canceled_late():
    """It is Started from the first, so nobody could have called it off."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.CANCELED_LATE))
        served.stage.fail("node-1")

        assert [status for _, status in shown(await looks(served, DB))] == ["Started"]

    told(story)


def test_a_reboot_is_shown_as_a_freeze_and_the_rest_as_it_is():
    """Only the type, in all versions."""

    async def story(served):
        usual = await looks(served)
        served.worker.faults.set(Fault(FaultKind.FREEZE_FOR_REBOOT))
        answer = await looks(served)

        assert usual.events == [{**answer.events[0], "EventType": "Reboot"}]
        assert shown(answer) == [("Freeze", "Scheduled")]
        assert shown(await looks(served, version="2017-03-01")) == [("Freeze", "Scheduled")]

    told(story)


def test_two_events_for_one_vm():
    """The twin has its own GUID, type and time; approving it is answered 200 and does nothing."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.TWO_EVENTS, "web-0", seconds=60))
        own, twin = (await looks(served)).events
        answers = [
            await ask(served.port, approval(twin["EventId"], **CLOSING)),
            await ask(served.port, approval(twin["EventId"].lower(), **CLOSING)),
            await ask(served.port, approval(twin["EventId"], "nobody's", **CLOSING)),
            await ask(served.port, approval(twin["EventId"], **CLOSING), source=OTHER_WEB),
        ]
        approved = served.stage.only(WEB).approval

        assert [answer.status for answer in answers] == [200, 200, 400, 400]
        assert approved is None
        assert own["EventId"] == served.stage.only(WEB).id
        assert twin["EventId"] not in {own["EventId"], ""}
        assert (twin["EventType"], twin["Resources"]) == ("Freeze", ["web-0"])
        assert (own["NotBefore"][17:22], twin["NotBefore"][17:22]) == ("00:15", "00:16")
        assert (await looks(served)).events == [own, twin], "the same twin each time"
        both = approval(own["EventId"], twin["EventId"], **CLOSING)
        served.stage.advance(minutes=14)
        assert (await ask(served.port, both)).status == 200
        assert served.stage.only(WEB).approval.by == "web-0"
        assert shown(await looks(served)) == [("Reboot", "Started"), ("Freeze", "Scheduled")]
        served.stage.advance(minutes=2)
        assert shown(await looks(served)) == [("Reboot", "Started"), ("Freeze", "Started")]
        served.stage.report_served()
        assert {first.vm for first in served.stage.only(WEB).seen} == {"web-0"}
        served.worker.faults.clear_all()
        unknown = await ask(served.port, approval(twin["EventId"], **CLOSING))
        assert unknown.status == 400, "nobody was ever shown it, as far as is known now"

    told(story)


def test_a_twin_that_is_gone_can_be_approved_as_any_event_that_is():
    """Whoever is late is not told that there never was one."""

    async def story(served):
        served.worker.faults.set(Fault(FaultKind.TWO_EVENTS, "web-0"))
        _, twin = (await looks(served)).events
        served.stage.approve("web-0")
        served.stage.done("web-0")
        served.stage.advance(minutes=30)
        assert (await looks(served)).events == []

        assert (await ask(served.port, approval(twin["EventId"], **CLOSING))).status == 200

    told(story)


def test_the_incarnation_is_reset_and_counts_on():
    """From 1 when it is set, one more for each change; the law's own number when cleared."""

    async def story(served):
        stage, faults = served.stage, served.worker.faults
        usual = await looks(served)
        faults.set(Fault(FaultKind.INCARNATION_RESET))
        reset = await looks(served)
        again = await looks(served)
        stage.approve("web-0")
        moved = await looks(served)
        faults.set(Fault(FaultKind.INCARNATION_RESET))
        anew = await looks(served)
        faults.clear_all()

        assert (usual.incarnation, reset.incarnation, again.incarnation) == (2, 1, 1)
        assert reset.events == usual.events
        assert (moved.incarnation, anew.incarnation) == (2, 1)
        assert (await looks(served)).incarnation == stage.scope(WEB).incarnation == 3
        assert len({usual.etag, reset.etag, moved.etag}) == 3

    told(story)


def test_nothing_is_held_while_a_document_may_change_with_time():
    """Who already waits is answered when the fault is set, and who asks, at once."""

    async def story(served):
        etag = (await looks(served)).etag
        wait = last(f"If-None-Match: {etag}", "Prefer: wait=60")
        held = asyncio.create_task(ask(served.port, wait))
        neighbour = asyncio.create_task(ask(served.port, wait, source=OTHER_WEB))
        await soon(lambda: served.worker.held_count == 2)
        served.worker.faults.set(Fault(FaultKind.SHORT_NOTICE, "web-0"))
        answer = await held
        known = last(f"If-None-Match: {answer.etag}", "Prefer: wait=60")
        unchanged = await ask(served.port, known)

        assert (answer.status, answer.events) == (200, [])
        assert (unchanged.status, unchanged.body) == (304, b"")
        assert "preference-applied" not in answer.headers | unchanged.headers
        assert not neighbour.done()
        served.stage.approve("web-1")
        assert shown(await neighbour) == [("Reboot", "Started")]

    told(story)


def test_faults_of_documents_go_together_and_those_of_http_over_them():
    """A twin of what is shown as a Freeze, with raw bytes; and all of it in garbage."""

    async def story(served):
        faults = served.worker.faults
        for kind in (
            FaultKind.TWO_EVENTS,
            FaultKind.FREEZE_FOR_REBOOT,
            FaultKind.INCARNATION_RESET,
        ):
            faults.set(Fault(kind))
        together = await looks(served)
        faults.set(Fault(FaultKind.GARBAGE))
        garbage = await talk(served.port, last())
        for kind in (FaultKind.GARBAGE, FaultKind.INCARNATION_RESET):
            faults.clear(kind)
        counted = await looks(served)

        assert (counted.events, counted.incarnation) == (together.events, 3), "the law's, and one"
        assert shown(together) == [("Freeze", "Scheduled"), ("Reboot", "Scheduled")]
        assert together.incarnation == 1
        looks_like(FaultKind.GARBAGE, garbage, b"")

    told(story)
