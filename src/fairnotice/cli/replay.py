"""`fairnotice replay`: a recording, served again."""

import argparse
import json
import sys
import threading
from collections import Counter
from contextlib import suppress

from fairnotice.cli import exits
from fairnotice.cli.instants import length, seconds_in_words
from fairnotice.cli.parsing import Subparsers, alone, ends_like_ctrl_c, listening
from fairnotice.testing.recordings.replayer import Replay, Told

LISTEN = "127.0.0.1:8169"
# How often it looks whether the recording is over.
LOOK_SECONDS = 0.25
LINES = (
    "fairnotice replay azure.jsonl                     # at its own pace, at 127.0.0.1:8169",
    "fairnotice replay azure.jsonl --speed 60          # an hour in a minute",
    "fairnotice replay azure.jsonl --speed step        # the next answer for every request",
    "fairnotice replay azure.jsonl --from 1h30m --shift    # from there on; Date and NotBefore now",
    "curl -H Metadata:true 'http://127.0.0.1:8169/metadata/scheduledevents?api-version=2020-07-01'",
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = alone(subparsers, "replay", run, "serve a recording again", LINES)
    parser.add_argument("file", metavar="FILE", help="what fairnotice record has written")
    parser.add_argument(
        "--listen",
        type=listening,
        default=listening(LISTEN),
        metavar="HOST:PORT",
        help=f"where ({LISTEN})",
    )
    parser.add_argument(
        "--speed", default="1", metavar="N|step", help="how many times as fast (1); or by request"
    )
    parser.add_argument("--from", type=length, dest="begin", metavar="10m", help="begin there")
    parser.add_argument("--loop", action="store_true", help="at the end, begin again")
    parser.add_argument(
        "--shift", action="store_true", help="show Date and NotBefore in the time of the replay"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each request")


def run(options: argparse.Namespace) -> int:
    """Serve the recording until Ctrl-C."""
    telling = _Telling(as_json=options.json)
    replay = Replay(
        options.file,
        speed=options.speed,
        listen=options.listen,
        begin_seconds=options.begin.total_seconds() if options.begin else 0.0,
        loop=options.loop,
        shift=options.shift,
        tell=telling,
    )
    ends_like_ctrl_c()
    if replay.recording.cut_off:
        print("The last line of the recording is cut off; it is left out.", file=sys.stderr)
    with suppress(KeyboardInterrupt), replay:
        telling.begin(replay)
        _until_over(replay, telling)
        threading.Event().wait()
    telling.end(replay)
    return exits.DONE


def _until_over(replay: Replay, telling: "_Telling") -> None:
    pause = threading.Event()
    while not replay.over:
        pause.wait(LOOK_SECONDS)
    telling.over()


class _Telling:
    """Says what is asked and answered, for people or for a program."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._statuses: Counter[str] = Counter()

    def begin(self, replay: Replay) -> None:
        """Where it is served, and what."""
        recording = replay.recording
        took = seconds_in_words(recording.seconds)
        began = f"{recording.opening.started:%Y-%m-%d %H:%M:%S} UTC"
        if self._as_json:
            self._line(
                replay=replay.url,
                answers=recording.answers,
                seconds=recording.seconds,
                started=recording.opening.started.isoformat(),
            )
            return
        print(f"{recording.answers} answers of {took}, recorded from {began} on.")
        print(f"serving {replay.url}/metadata/scheduledevents   (Ctrl-C ends it)", flush=True)

    def __call__(self, told: Told) -> None:
        """One request."""
        self._statuses[told.failure or str(told.status)] += 1
        if self._as_json:
            self._line(**told._asdict())
            return
        came = str(told.status) if told.status else "no answer"
        more = [told.failure, told.wrong]
        more += [f"approves {', '.join(told.approved)}"] if told.approved else []
        added = "".join(f", {one}" for one in more if one)
        line = f"{told.at:8.1f} s  {told.peer}  {told.method} {told.target}: {came}{added}"
        # What a client sent is shown, and does nothing to the terminal.
        print("".join(c if c.isprintable() else "?" for c in line), flush=True)

    def over(self) -> None:
        """The recording is over."""
        if self._as_json:
            self._line(over=True)
        else:
            print("The recording is over; its last answers stay.", flush=True)

    def end(self, replay: Replay) -> None:
        """What was asked and answered in all."""
        if self._as_json:
            self._line(answered=dict(self._statuses), approved=replay.approvals)
            return
        parts = ", ".join(f"{count} of {status}" for status, count in self._statuses.most_common())
        approved = len(set(replay.approvals))
        print(f"{self._statuses.total()} requests ({parts or 'none'}); {approved} events approved.")

    def _line(self, **row: object) -> None:
        print(json.dumps(row, ensure_ascii=False), flush=True)
