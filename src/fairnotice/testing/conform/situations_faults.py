"""Situations in which the endpoint misbehaves: wrong answers, spoiled ones, odd documents."""

import math
from datetime import timedelta
from functools import partial
from itertools import pairwise

from fairnotice.metadata.faults import FaultKind
from fairnotice.testing.conform.scene import TOO_MANY, NotSurvived, Scene
from fairnotice.testing.conform.situation import Situation
from fairnotice.words import EventType

# How long a fault lasts, in requests.
FAULTY_ANSWERS = 3
# Long enough to hammer, also on a busy machine.
HAMMERING_SECONDS = 1.0
# Of what Retry-After asks for: a clock is never exact.
EARLY = 0.9
# What a 503 to an acknowledgement asks for.
RETRY_AFTER_SECONDS = 5.0
SHORT_SECONDS = 60.0
SHORTER = timedelta(seconds=30)


def _spoiled(scene: Scene, kind: FaultKind, said: str) -> None:
    """It asks on while the fault is on, and sees what comes when it is over."""
    scene.begin()
    scene.set_fault(kind)
    scene.tell(said)
    scene.asks_on(FAULTY_ANSWERS)
    # Whether it hammers is seen by its manners.
    scene.lives_on(max(scene.declared.interval_seconds, HAMMERING_SECONDS))
    scene.clear_faults()
    scene.tell(f"{said}, and that was over")
    scene.recovers()


def _too_many(scene: Scene) -> None:
    scene.begin()
    retry_after = max(1, math.ceil(2 * scene.declared.interval_seconds))
    scene.set_fault(FaultKind.TOO_MANY, seconds=retry_after)
    scene.tell(f"every answer was 429 with Retry-After: {retry_after}")
    scene.asks_on(FAULTY_ANSWERS)
    scene.clear_faults()
    refused = [one.at for one in scene.watch.seen if one.status == TOO_MANY]
    pauses = [later - earlier for earlier, later in pairwise(refused)]
    # One that is run anew for each poll has no memory of the last.
    if not scene.declared.once and min(pauses) < EARLY * retry_after:
        raise NotSurvived(
            f"It asked again {min(pauses):.1f} s after a 429 with Retry-After: {retry_after}."
        )
    scene.recovers(more_seconds=retry_after)


def _no_approvals(scene: Scene) -> None:
    scene.begin()
    scene.watch.refusing = 1
    event = scene.announce()
    scene.tell("its first acknowledgement was answered 503 with Retry-After: 5")
    scene.acknowledges(event, more_seconds=RETRY_AFTER_SECONDS)


def _control_characters(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.CONTROL_CHARACTERS)
    scene.tell("a Description held raw control characters")
    scene.recovers()
    scene.clear_faults()
    scene.polls_on(1)


def _incarnation_reset(scene: Scene) -> None:
    scene.begin()
    scene.tell("events of another came and went")
    # So that the count is high enough to be missed.
    for _ in range(2):
        scene.complete(scene.announce("web-1"))
        scene.polls_on(1)
    scene.set_fault(FaultKind.INCARNATION_RESET)
    scene.tell("DocumentIncarnation had begun again at 1")
    scene.polls_on(1)
    scene.recovers()


def _short_notice(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.SHORT_NOTICE, seconds=SHORT_SECONDS)
    event = scene.announce()
    scene.tell("an event was announced, and not shown yet")
    scene.polls_on(1)
    scene.cloud.advance_to(event.not_before - SHORTER)
    scene.tell("an event was first shown 30 s before its NotBefore")
    scene.decides(event)


def _canceled_late(scene: Scene) -> None:
    scene.begin()
    event = scene.maintain()
    scene.tell("maintenance of its node was announced")
    scene.set_fault(FaultKind.CANCELED_LATE, seconds=SHORT_SECONDS)
    scene.polls_on()
    scene.cloud.advance_to(event.not_before - SHORTER)
    scene.tell("its event was gone, shortly before its NotBefore")
    scene.lets_go(event)
    scene.complete(event)
    scene.clear_faults()
    scene.recovers()


def _freeze_for_reboot(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.FREEZE_FOR_REBOOT)
    event = scene.announce(kind=EventType.REBOOT)
    scene.tell("a Reboot was shown as a Freeze")
    if scene.declared.acknowledges and EventType.FREEZE in scene.declared.types:
        scene.acknowledges(event)
    else:
        # Until it is shown as what it is: then it may be of a type that it handles.
        scene.polls_on()
        scene.has_left_alone(event, "shown as a Freeze, which it was said not to acknowledge")
    scene.clear_faults()
    scene.tell("an event had changed its type")
    scene.polls_on()


def _twins(scene: Scene) -> None:
    scene.begin()
    scene.set_fault(FaultKind.TWO_EVENTS)
    event = scene.announce()
    scene.tell("each event had a twin of another type")
    scene.decides(event)
    scene.polls_on()
    scene.complete(event)
    scene.tell("an event and its twin were gone")
    scene.polls_on()


AGAIN = "Ask again a little later."
ERRORS = "Errors"
# kind, what is said of it, what it shows, what is right, where it is from
SPOILED = (
    (
        FaultKind.EMPTY_BODY,
        "answers had been 200 without a body",
        "Answers are 200 without a body.",
        "Take an empty body for no news, and ask again.",
        "seen on Azure in 2024 where nothing was announced",
    ),
    (
        FaultKind.GARBAGE,
        "answers had been no JSON",
        "Answers are 200 with bytes that are no JSON.",
        AGAIN,
        "what somebody in between may answer",
    ),
    (
        FaultKind.CUT_OFF,
        "connections had been closed in the middle of the answer",
        "The connection is closed in the middle of the answer.",
        AGAIN,
        "clients in use ask again at an early end of file",
    ),
    (
        FaultKind.DROPPED,
        "connections had been closed without an answer",
        "The connection is closed without a byte of an answer.",
        AGAIN,
        "clients in use ask again at an early end of file",
    ),
    (
        FaultKind.NOT_FOUND,
        "every answer had been 404",
        "Every answer is 404, as for a version that a node does not know yet.",
        "Ask again a little later; it may be the node that is behind.",
        ERRORS,
    ),
    (
        FaultKind.GONE,
        "every answer had been 410",
        "Every answer is 410: the service is being updated.",
        "Ask again; Azure says that it may take 70 s.",
        ERRORS,
    ),
    (
        FaultKind.ERROR,
        "every answer had been 500",
        "Every answer is 500.",
        "Ask again a little later, as Azure's page says.",
        ERRORS,
    ),
)

SITUATIONS = (
    *(
        Situation(kind.value, shows, right, source, partial(_spoiled, kind=kind, said=said))
        for kind, said, shows, right, source in SPOILED
    ),
    Situation(
        "too-many",
        "Every answer is 429 with Retry-After.",
        "Wait as long as Retry-After says.",
        ERRORS,
        _too_many,
    ),
    Situation(
        "no-approvals",
        "An acknowledgement is answered 503: it cannot be recorded now.",
        "Acknowledge again: only a 200 counts.",
        ERRORS,
        _no_approvals,
        acknowledging=True,
        usual=True,
    ),
    Situation(
        "control-characters",
        "A Description holds raw control characters, which JSON forbids.",
        "Read leniently (in Python strict=False), or take bytes below 0x20 out before reading.",
        "a Description is free text; no capture of it is known",
        _control_characters,
    ),
    Situation(
        "incarnation-reset",
        "DocumentIncarnation begins again at 1, as after a day without a poll.",
        "Compare incarnations for being another, never for being higher; or not at all.",
        "Enabling",
        _incarnation_reset,
    ),
    Situation(
        "short-notice",
        "An event is first shown 30 s before its NotBefore.",
        "Do what can be done in the time there is, and acknowledge.",
        "users of Azure report less notice than the table says",
        _short_notice,
    ),
    Situation(
        "canceled-late",
        "An event vanishes 30 s before its NotBefore.",
        "Forget it, and undo what was prepared.",
        "Azure's page: removed when canceled",
        _canceled_late,
    ),
    Situation(
        "freeze-for-reboot",
        "What is announced as a Reboot is only a Freeze; the EventId is the same.",
        "Read EventType anew at every poll.",
        "Azure's page: a Reboot may in rare cases be a Freeze",
        _freeze_for_reboot,
    ),
    Situation(
        "twins",
        "Each event for it has a twin of another type, with an EventId of its own.",
        "Know events by their EventId, never by their type or their VM.",
        "The document",
        _twins,
    ),
)
