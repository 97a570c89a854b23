"""Plays situations with a client: each in a cloud of its own, with the client started anew."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from statistics import median
from threading import Event

from fairnotice.clock import SystemClock
from fairnotice.errors import UnknownName, UsageError
from fairnotice.testing.conform.declared import Declared
from fairnotice.testing.conform.process import check_command
from fairnotice.testing.conform.scene import START_SECONDS, NotSurvived, Scene
from fairnotice.testing.conform.situation import Situation
from fairnotice.testing.conform.situations import SITUATIONS
from fairnotice.testing.conform.verdict import Report, Result, Verdict

# Most of the time all of them wait.
JOBS_PER_CORE = 4
# How often it asks is seen from so many requests; an interval longer than this must be declared.
MEASURED_REQUESTS = 4
MEASURING_SECONDS = 90.0
# Whoever asks more often than so is measured no further.
HAMMERING_PER_SECOND = 1_000
# Of what a client printed, shown where it never asked.
SHOWN_LINES = 10
# Where a client is run anew for each poll, and nobody has said how often.
ONCE_SECONDS = 1.0
ONLY_WATCHES = "It was said only to watch."
ASKED_ELSEWHERE = (
    " With the address built in it may have asked the real 169.254.169.254, and approved what that "
    "announced: use --namespace."
)
NONE_OF_THESE = "It was said to acknowledge neither Reboot, Redeploy nor Freeze."

Told = Callable[[Result], None]


def conform(
    command: Sequence[str] | Declared,
    situations: Iterable[str] | None = None,
    *,
    jobs: int | None = None,
    begun: Callable[[], None] = lambda: None,
    told: Told = lambda _: None,
) -> Report:
    """Play these situations, or all, with a client; `told` of each result when it is there.

    `begun` when it is known how often it asks, and the first of them is played.

    report = conform(["./my-client"], ["reboot", "of-another"])
    assert report.survived

    UsageError where the client cannot be started, or never asks.
    """
    declared = command if isinstance(command, Declared) else Declared(tuple(command))
    chosen = chosen_situations(situations)
    clock = SystemClock()
    began_at = clock.monotonic()
    interrupted = Event()
    declared = measured(declared.checked(), interrupted)
    begun()
    side_by_side = jobs or JOBS_PER_CORE * (os.cpu_count() or 1)
    with ThreadPoolExecutor(side_by_side, "conform") as pool:
        under_way = [pool.submit(play, one, declared, interrupted, told) for one in chosen]
        try:
            results = tuple(one.result() for one in under_way)
        except BaseException:
            # Whoever waits has had enough: no client is left behind, and nobody waits for them.
            interrupted.set()
            pool.shutdown(cancel_futures=True)
            raise
    return Report(declared, results, clock.monotonic() - began_at)


def chosen_situations(names: Iterable[str] | None) -> list[Situation]:
    """Those of these names, or all, in the order of the table; UnknownName for any other."""
    if names is None:
        return list(SITUATIONS.values())
    wanted = list(names)
    for name in wanted:
        if name not in SITUATIONS:
            near = tuple(get_close_matches(name, SITUATIONS, n=3))
            meant = f" Did you mean {' or '.join(near)}?" if near else " See --list."
            raise UnknownName(f"There is no situation {name}.{meant}", near)
    return [one for one in SITUATIONS.values() if one.name in wanted]


def play(situation: Situation, declared: Declared, interrupted: Event, told: Told) -> Result:
    """Let the client meet this situation."""
    if situation.acknowledging and not declared.acknowledges:
        result = Result(situation.name, Verdict.NOT_ASKED, ONLY_WATCHES)
    elif situation.usual and declared.usual_type is None:
        result = Result(situation.name, Verdict.NOT_ASKED, NONE_OF_THESE)
    else:
        result = _played(situation, declared, interrupted)
    told(result)
    return result


def _played(situation: Situation, declared: Declared, interrupted: Event) -> Result:
    clock = SystemClock()
    began_at = clock.monotonic()
    with Scene(declared, situation.vm, situation.fleet, interrupted) as scene:
        why = _failure(situation, scene)
    verdict = Verdict.FAILED if why else Verdict.SURVIVED
    seconds = clock.monotonic() - began_at
    return Result(situation.name, verdict, why, seconds, scene.client.output)


def _failure(situation: Situation, scene: Scene) -> str:
    """What the client did wrong, and what is right; empty where it survived."""
    try:
        situation.play(scene)
        scene.has_manners()
    except NotSurvived as failed:
        return f"{failed} {failed.right or situation.right}"
    return ""


def measured(declared: Declared, interrupted: Event) -> Declared:
    """The same with how often it asks; UsageError where it cannot be started or never asks."""
    check_command(declared.command)
    guessed = declared.poll_seconds or (ONCE_SECONDS if declared.once else None)
    trial = declared._replace(poll_seconds=guessed or MEASURING_SECONDS)
    with Scene(trial, "web-0", None, interrupted) as scene:
        scene.endpoint.open()
        scene.client.start()
        watch, client = scene.watch, scene.client
        began_at = watch.clock.monotonic()
        watch.wait(lambda: watch.asked > 0 or client.exit_code is not None, START_SECONDS)
        if not watch.asked:
            raise UsageError(_never_asked(scene))
        started = trial._replace(start_seconds=watch.clock.monotonic() - began_at)
        if guessed is not None:
            return started
        watch.wait(
            lambda: len(watch.intervals()) >= MEASURED_REQUESTS - 1 or client.exit_code is not None,
            MEASURING_SECONDS,
        )
        intervals = watch.intervals()
    if not intervals:
        raise UsageError(
            f"It asked once and not again within {MEASURING_SECONDS:.0f} s. Say how often it asks "
            "with --poll-seconds, or that it asks once and ends with --once."
        )
    shortest = 1 / HAMMERING_PER_SECOND
    return started._replace(poll_seconds=max(median(intervals), shortest), measured=True)


def _never_asked(scene: Scene) -> str:
    """Said once, and not for each situation."""
    code = scene.client.exit_code
    ended = f", and ended with exit code {code}" if code is not None else ""
    told = "\n".join(scene.client.output.splitlines()[-SHOWN_LINES:])
    elsewhere = "" if scene.declared.namespace else ASKED_ELSEWHERE
    return (
        f"The client never asked{ended}. It is told where by "
        f"FAIRNOTICE_METADATA_URL, or {{url}} in its command.{elsewhere}"
        f"{f' It said:{chr(10)}{told}' if told else ''}"
    )
