"""Situations in which nothing but asking is required: how often, with what, and how patiently."""

from fairnotice.metadata.faults import FaultKind
from fairnotice.testing.conform.scene import PAUSE, Scene
from fairnotice.testing.conform.situation import Situation

# Longer than anybody waits: the answer does not come.
NEVER_SECONDS = 24 * 3_600.0
UNCHANGED_POLLS = 5
# After so long a burst is none any more.
CALM_SECONDS = 4.0


def _quiet(scene: Scene) -> None:
    scene.begin()
    scene.polls_on()


def _calm(scene: Scene) -> None:
    scene.begin()
    scene.lives_on(CALM_SECONDS + scene.declared.interval_seconds)
    scene.polls_on(1)


def _unchanged(scene: Scene) -> None:
    scene.begin()
    scene.polls_on(UNCHANGED_POLLS)
    conditional = any(one.conditional for one in scene.watch.seen)
    how = "answered 304" if conditional else "the same document"
    scene.tell(f"its polls had been {how} for a while")
    scene.recovers()


def _late_first_answer(scene: Scene) -> None:
    scene.set_fault(FaultKind.SLOW_FIRST, seconds=scene.declared.late_seconds)
    scene.tell(f"its first answer came {scene.declared.late_seconds:g} s late")
    scene.begin()
    scene.recovers()


def _slow(scene: Scene) -> None:
    scene.begin()
    late = scene.declared.late_seconds
    scene.set_fault(FaultKind.SLOW, seconds=late)
    scene.tell(f"every answer took {late:g} s")
    # The poll, the acknowledgement, and whatever else it asks for.
    scene.recovers(more_seconds=4 * late)


def _stalled(scene: Scene) -> None:
    scene.begin()
    stall = scene.declared.stall_seconds
    scene.set_fault(FaultKind.SLOW, seconds=NEVER_SECONDS)
    scene.tell("an answer did not come")
    unanswered = scene.cloud.core.worker.faults.spoiled
    scene.require(
        lambda: unanswered[FaultKind.SLOW] > 1,
        stall + scene.declared.patience_seconds,
        lambda: f"It waited longer than {stall:g} s for an answer that did not come.",
    )
    scene.clear_faults()
    # It may be waiting once more.
    scene.recovers(more_seconds=stall)


SITUATIONS = (
    Situation(
        "quiet",
        "Nothing is announced.",
        "Ask on, with Metadata: true and a known api-version.",
        "Requests",
        _quiet,
    ),
    Situation(
        "calm",
        "Nothing is announced, and it is counted how often it asks.",
        PAUSE,
        "Errors (429)",
        _calm,
    ),
    Situation(
        "unchanged",
        "The document stays the same for a while (304 to whoever sends its ETag), then changes.",
        "Take 304 for the document that is known, and send the ETag of the last 200.",
        "Asking only for what is new",
        _unchanged,
    ),
    Situation(
        "late-first-answer",
        "The very first answer is late, as when Azure enables a VM for scheduled events.",
        "Wait longer for the first answer, or ask again; Azure takes up to two minutes.",
        "Enabling",
        _late_first_answer,
    ),
    Situation(
        "slow",
        "Every answer is late, and an event is announced meanwhile.",
        "Wait some 10 s for an answer before giving up.",
        "a client in use raised its time-out from 1 to 10 s in 2024",
        _slow,
    ),
    Situation(
        "stalled",
        "An answer does not come at all.",
        "Set a time-out, and ask again when it is over.",
        "a client in use warns of calls of more than 55 s",
        _stalled,
    ),
)
