"""`fairnotice record`: what a real endpoint answers, kept in a file."""

import argparse
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fairnotice.cli import exits
from fairnotice.cli.instants import length, seconds, seconds_in_words
from fairnotice.cli.parsing import Subparsers, alone, ends_like_ctrl_c, listening
from fairnotice.clock import SystemClock
from fairnotice.errors import UsageError
from fairnotice.testing.recordings.private_names import AZURE_URL, PrivateNames
from fairnotice.testing.recordings.recorder import (
    Endpoint,
    Recorder,
    poll,
    polls,
    recording_proxy,
)
from fairnotice.testing.recordings.recording import Exchange

API_VERSION = "2020-07-01"
EVERY_SECONDS = 1.0
TIMEOUT = "150s"
SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 86_400.0
REMEMBERED = 16
LINES = (
    "fairnotice record --output azure.jsonl                  # inside an Azure VM, until Ctrl-C",
    "fairnotice record --output azure.jsonl --for 1h --anonymise",
    "fairnotice record --output azure.jsonl --replace web-0=vm-a --replace contoso=example",
    "fairnotice record --output client.jsonl --listen 127.0.0.1:8170    # what a client asks",
    "fairnotice replay azure.jsonl                           # serve it again",
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    summary = "keep what a real endpoint answers in a file"
    parser = alone(subparsers, "record", run, summary, LINES)
    parser.add_argument("--output", metavar="FILE", required=True, help="where it is kept; new")
    parser.add_argument(
        "--url",
        # Not the control plane that other commands ask.
        dest="endpoint",
        metavar="URL",
        default=AZURE_URL,
        help=f"whom to ask ({AZURE_URL})",
    )
    parser.add_argument(
        "--every", type=_pause, default=EVERY_SECONDS, metavar="SECONDS", help="how often (1)"
    )
    parser.add_argument(
        "--api-version", default=API_VERSION, metavar="V", help=f"of what ({API_VERSION})"
    )
    parser.add_argument(
        "--for", type=length, dest="lasting", metavar="1h", help="then end; a number is seconds"
    )
    parser.add_argument(
        "--timeout",
        type=length,
        default=length(TIMEOUT),
        metavar="150s",
        help="how long an answer may take; Azure's first takes up to two minutes",
    )
    parser.add_argument("--instance", action="store_true", help="the instance document, too, once")
    parser.add_argument("--only-changes", action="store_true", help="no line where nothing changed")
    parser.add_argument(
        "--replace",
        type=_pair,
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="write NEW for OLD, wherever and in whichever case it stands; may be given again",
    )
    parser.add_argument(
        "--anonymise", action="store_true", help="replace every name, id and address"
    )
    parser.add_argument(
        "--listen",
        type=listening,
        metavar="HOST:PORT",
        help="ask nothing: pass on what a client asks here, its POSTs too",
    )


def run(options: argparse.Namespace) -> int:
    """Record until Ctrl-C, or as long as was said."""
    clock = SystemClock()
    endpoint = Endpoint.of(options.endpoint)
    names = PrivateNames(options.replace, anonymise=options.anonymise)
    # However it is ended, the recording is whole.
    ends_like_ctrl_c()
    with _opened(options.output) as file:
        recorder = Recorder(
            endpoint,
            file,
            clock,
            names=names,
            only_changes=options.only_changes,
            seconds_max=options.timeout.total_seconds(),
        )
        recorder.begin(options.endpoint)
        try:
            with suppress(KeyboardInterrupt):
                _record(options, recorder, clock)
        except UsageError:
            # Nothing was recorded, so nothing is left in the way of the next try.
            Path(options.output).unlink()
            raise
        recorder.end()
    _conclude(options.output, recorder)
    return exits.DONE


def _record(options: argparse.Namespace, recorder: Recorder, clock: SystemClock) -> None:
    lasting = None if options.lasting is None else options.lasting.total_seconds()
    tell = _Telling()
    if options.listen is None:
        asked = polls(options.api_version, instance=options.instance)
        print(f"recording {options.endpoint} into {options.output}   (Ctrl-C ends it)", flush=True)
        poll(
            recorder,
            asked,
            every_seconds=options.every,
            clock=clock,
            for_seconds=lasting,
            tell=tell,
        )
        return
    server = recording_proxy(recorder, options.listen, clock, tell)
    server.begin()
    try:
        where = f"{options.endpoint} for whoever asks {server.url}"
        print(f"recording {where} into {options.output}   (Ctrl-C ends it)", flush=True)
        recorder.stopped.wait(lasting)
    finally:
        server.end()


def _opened(path: str) -> BinaryIO:
    """A new file that only its owner reads: what is in it may be private."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already; give --output a name of its own.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    # Unbuffered: a line is written at once and as a whole, or not at all.
    return os.fdopen(number, "wb", buffering=0)


# ---- Typed ----


def _pause(text: str) -> float:
    found = seconds(text)
    if not SHORTEST_SECONDS <= found <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no pause; give seconds, 0.01 to 86400")
    return found


def _pair(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    # What would end a text in the middle of a document is no name.
    if not old or not new or not new.isprintable() or set(new) & set('"\\'):
        raise argparse.ArgumentTypeError(f"{text!r} is no replacement; give OLD=NEW, as web-0=vm-a")
    return old, new


# ---- Said ----


class _Telling:
    """Says on the terminal what changed."""

    def __init__(self) -> None:
        self._before: dict[str, object] = {}

    def __call__(self, exchange: Exchange) -> None:
        asked, answer = exchange.asked, exchange.answer
        now = (answer.status, answer.body, answer.failure)
        if asked.method == "GET" and self._before.get(asked.target) == now:
            return
        if len(self._before) > REMEMBERED:
            # A client that never asks the same twice is told of in full, and not remembered.
            self._before.clear()
        self._before[asked.target] = now
        came = f"{answer.status}, {len(answer.body)} bytes" if answer.status else "no answer"
        failed = f" ({answer.failure})" if answer.failure else ""
        print(f"{exchange.at:8.1f} s  {asked.method} {asked.target}: {came}{failed}", flush=True)


def _conclude(path: str, recorder: Recorder) -> None:
    answers, changes, failures = recorder.counted
    size = Path(path).stat().st_size
    took = seconds_in_words(recorder.seconds)
    said = f"{answers} answers in {took}, {changes} of them new, {failures} failed; {size:,} bytes."
    print(f"{said} Serve it with: fairnotice replay {path}")
