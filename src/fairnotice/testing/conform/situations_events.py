"""Situations in the life of an event: announced, approved, started, over, canceled, postponed."""

from datetime import timedelta
from functools import partial

from fairnotice.metadata.faults import FaultKind
from fairnotice.testing.clouds.handles import CloudEvent, Impact
from fairnotice.testing.conform.scene import Scene
from fairnotice.testing.conform.situation import Situation
from fairnotice.words import EventType

OTHER = "web-1"
STARTED = "which had started already"


def _announced(scene: Scene, kind: EventType) -> None:
    scene.begin()
    scene.tell(f"a {kind} was announced")
    scene.decides(scene.announce(kind=kind))
    scene.polls_on(1)


def _maintained(scene: Scene, impact: Impact, duration_seconds: int) -> None:
    scene.begin()
    scene.tell("maintenance of its node was announced")
    scene.decides(scene.maintain(impact=impact, duration_seconds=duration_seconds))
    scene.polls_on(1)


def _life(scene: Scene) -> None:
    scene.begin()
    event = scene.announce()
    scene.tell("an event was announced")
    scene.acknowledges(event)
    scene.cloud.run_until(event, "Started")
    scene.tell('its event had become Started, with NotBefore ""')
    scene.lets_go(event, STARTED)
    scene.complete(event)
    scene.tell("its event was over and gone")
    scene.lets_go(event)


def _next_event(scene: Scene) -> None:
    scene.begin()
    for count in ("first", "second", "third"):
        scene.tell(f"a {count} event was announced, with an id of its own")
        event = scene.announce()
        scene.acknowledges(event)
        scene.complete(event)
        scene.polls_on(1)


def _two_at_once(scene: Scene) -> None:
    scene.begin()
    scene.tell("two events for it were announced at once")
    both = (scene.announce(kind=EventType.REBOOT), scene.maintain())
    for event in both:
        scene.decides(event)


def _same_type(scene: Scene) -> None:
    scene.begin()
    first = scene.maintain(impact="reboot")
    scene.tell("a Reboot that the platform needs was announced")
    scene.decides(first)
    # Others are on its node, so the first is Scheduled still.
    second = scene.announce(kind=EventType.REBOOT)
    scene.tell("a second Reboot was announced while the first was Scheduled")
    scene.decides(second)


def _during_another(scene: Scene) -> None:
    scene.begin()
    first = scene.announce()
    scene.tell("an event was announced")
    scene.acknowledges(first)
    scene.cloud.run_until(first, "Started")
    scene.polls_on(1)
    scene.tell("a second event was announced while the first was Started")
    second = EventType.REBOOT if first.type is EventType.FREEZE else EventType.FREEZE
    if second not in scene.declared.types:
        second = first.type
    scene.decides(scene.announce(kind=second))


def _waits_for_others(scene: Scene) -> None:
    scene.begin()
    event = scene.maintain()
    scene.tell("maintenance of its node was announced")
    scene.decides(event)
    scene.tell("its event stayed Scheduled, since others had not approved")
    scene.polls_on()
    scene.cloud.run_until(event, "Started")
    scene.tell("its event had become Started")
    scene.lets_go(event, STARTED)
    scene.complete(event)
    scene.recovers()


def _canceled(scene: Scene) -> None:
    scene.begin()
    event = scene.maintain()
    scene.tell("maintenance of its node was announced")
    scene.polls_on()
    event.cancel()
    scene.tell("its event had been canceled and was gone")
    scene.lets_go(event)
    scene.recovers()


def _postponed(scene: Scene) -> None:
    scene.begin()
    event = scene.announce(OTHER)
    scene.tell("an event was announced that names another")
    scene.polls_on()
    event.postpone(event.not_before + timedelta(hours=1))
    scene.tell("NotBefore of an event had moved")
    scene.leaves_alone(event, "which does not name it")
    scene.recovers()


def _notice_over(scene: Scene) -> None:
    scene.begin()
    event = scene.announce(OTHER)
    scene.tell("an event was announced")
    scene.polls_on()
    scene.cloud.run_until(event, "Started")
    scene.tell('an event had become Started at its NotBefore, which is "" from then on')
    scene.leaves_alone(event, STARTED)
    scene.complete(event)
    scene.tell("the event was over and gone")
    scene.recovers()


def _missed_notice(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.ERROR)
    scene.tell("every answer had been 500 for a while")
    scene.asks_on(1)
    event = scene.announce()
    scene.cloud.run_until(event, "Started")
    scene.clear_faults()
    # Whoever does not outlive the errors has not seen the event.
    scene.polls_on(1)
    scene.tell("it was shown an event that had become Started while the service failed")
    _watches_to_the_end(scene, event)


def _node_failure(scene: Scene) -> None:
    scene.begin()
    failed = scene.node_of(scene.vm).fail()
    scene.tell("its node had failed: an event that was Started from the beginning")
    _watches_to_the_end(scene, next(event for event in failed if scene.vm in event.resources))


def _straight_to_started(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.STRAIGHT_TO_STARTED)
    event = scene.announce()
    scene.polls_on(1)
    scene.cloud.run_until(event, "Started")
    scene.tell("its event was Started when it was first shown")
    _watches_to_the_end(scene, event)


def _watches_to_the_end(scene: Scene, event: CloudEvent) -> None:
    """A Started event needs no go-ahead; when it is over the next one is seen."""
    scene.leaves_alone(event, STARTED)
    scene.complete(event)
    scene.clear_faults()
    scene.tell(f"a {event.type} that it could not prevent was over")
    scene.polls_on(1)
    scene.recovers()


ACKNOWLEDGE = "Acknowledge it as soon as the VM is prepared."
DOCUMENT = "The document"

TYPES = (
    Situation(
        "freeze",
        "A Freeze is announced, DurationInSeconds 9.",
        ACKNOWLEDGE,
        DOCUMENT,
        partial(_announced, kind=EventType.FREEZE),
        acknowledging=True,
    ),
    Situation(
        "freeze-of-no-length",
        "A Freeze is announced, DurationInSeconds 0: nothing is interrupted.",
        ACKNOWLEDGE,
        "Azure's page: 0 since 2022",
        partial(_maintained, impact="freeze", duration_seconds=0),
        acknowledging=True,
    ),
    Situation(
        "reboot",
        "A Reboot is announced that a user has asked for, DurationInSeconds -1.",
        ACKNOWLEDGE,
        DOCUMENT,
        partial(_announced, kind=EventType.REBOOT),
        acknowledging=True,
    ),
    Situation(
        "reboot-of-node",
        "A Reboot is announced that the platform needs.",
        ACKNOWLEDGE,
        DOCUMENT,
        partial(_maintained, impact="reboot", duration_seconds=-1),
        acknowledging=True,
    ),
    Situation(
        "redeploy",
        "A Redeploy is announced.",
        ACKNOWLEDGE,
        DOCUMENT,
        partial(_announced, kind=EventType.REDEPLOY),
        acknowledging=True,
    ),
    Situation(
        "preempt",
        "A Spot VM is taken away in 30 s, with an empty Description; shown from 2017-11-01 on.",
        "Acknowledge it at once, or use the 30 s.",
        "Versions",
        partial(_announced, kind=EventType.PREEMPT),
        acknowledging=True,
        vm="spot_0",
    ),
    Situation(
        "terminate",
        "An instance of a scale set is going to be deleted; shown from 2019-01-01 on.",
        "Acknowledge it when it is drained.",
        "Versions",
        partial(_announced, kind=EventType.TERMINATE),
        acknowledging=True,
        vm="batch_0",
    ),
)

SITUATIONS = (
    *TYPES,
    Situation(
        "life",
        'An event is announced, approved, Started with NotBefore "", over and gone.',
        'Acknowledge it when prepared, and not again; take NotBefore "" as no time at all.',
        "Approving",
        _life,
        acknowledging=True,
        usual=True,
    ),
    Situation(
        "next-event",
        "Three events come one after the other, each with another EventId.",
        "Know events by their EventId, and look at all of them at every poll.",
        DOCUMENT,
        _next_event,
        acknowledging=True,
        usual=True,
    ),
    Situation(
        "two-at-once",
        "Two events for it are announced at once.",
        "Go through all of Events, and acknowledge each of its own.",
        DOCUMENT,
        _two_at_once,
        acknowledging=True,
    ),
    Situation(
        "two-of-a-type",
        "A second Reboot is announced while the first, acknowledged, is Scheduled still.",
        "Know events by their EventId, never by their type: acknowledge each.",
        "Azure's users: two Reboots of one VM in one document",
        _same_type,
        acknowledging=True,
    ),
    Situation(
        "during-another",
        "A second event is announced while the first is Started.",
        "Go on looking while an event is Started: it may be so for ten minutes.",
        DOCUMENT,
        _during_another,
        acknowledging=True,
        usual=True,
    ),
    Situation(
        "waits-for-others",
        "It has approved, and the event stays Scheduled until the others on its node have, too.",
        "Wait; a 200 to the acknowledgement is enough.",
        "Approving",
        _waits_for_others,
    ),
    Situation(
        "canceled",
        "An event vanishes while it is Scheduled: it was canceled.",
        "Forget it, and undo what was prepared; it will not happen.",
        "Azure's page: removed when canceled",
        _canceled,
    ),
    Situation(
        "postponed",
        "NotBefore of an event moves, its EventId stays.",
        "Read NotBefore anew at every poll.",
        DOCUMENT,
        _postponed,
    ),
    Situation(
        "notice-over",
        'The notice of an event passes without approval: Started, and NotBefore is "".',
        'Take NotBefore "" as no time at all; a Started event needs no acknowledgement.',
        DOCUMENT,
        _notice_over,
    ),
    Situation(
        "missed-notice",
        "Its event became Started while the service answered nothing but errors.",
        "A Started event needs no acknowledgement; prepare as well as there is time.",
        DOCUMENT,
        _missed_notice,
    ),
    Situation(
        "node-failure",
        "Its node fails: an event that was never Scheduled.",
        "Be ready for events that are Started when they are first seen.",
        "Azure's page: hardware failure",
        _node_failure,
    ),
    Situation(
        "straight-to-started",
        "A restart is shown only when it is Started, as with automatic approval.",
        "Be ready for events that are Started when they are first seen.",
        "Azure's page: automaticallyApprove",
        _straight_to_started,
    ),
)
