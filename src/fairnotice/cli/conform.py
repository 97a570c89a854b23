"""`fairnotice conform -- COMMAND…`: which situations a client survives."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from fairnotice.cli import exits
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import RUNS_ANOTHER, RUNS_NONE, Subparsers, examples, from_one
from fairnotice.words import EventType

if TYPE_CHECKING:
    from fairnotice.testing.conform import Declared, Report, Result

DESCRIPTION = """Walk a client through situations that every client meets one day, and say which it
survives: each in a cloud of its own that is made for it, with the client started anew as a VM.

The client is told where its endpoint is by FAIRNOTICE_METADATA_URL (in the place of
http://169.254.169.254), or by {url} in its command; {vm} is the VM's name. No service is needed.
One with the address built in needs --namespace: without it, it asks the real 169.254.169.254, and
inside an Azure VM it may approve real events. The client really does what it does; for one that
asks once a second all of it takes about a minute.
Exit codes: 0 all were survived; 1 some were not; 2 the client cannot be started, or never asks."""
EXAMPLES = (
    "fairnotice conform -- ./my-agent",
    "fairnotice conform --junit conform.xml -- ./my-agent --endpoint {url}",
    "fairnotice conform --situation reboot of-another -- ./my-agent    # only these",
    "fairnotice conform --types Preempt,Terminate -- ./my-agent        # what it acknowledges",
    "fairnotice conform --namespace -- ./my-agent       # with 169.254.169.254 built in",
    "fairnotice conform --list",
)
# Of what a client printed while it failed, where nobody asked for all of it.
SHOWN_LINES = 5


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "conform",
        description=DESCRIPTION,
        epilog=examples(EXAMPLES),
        usage="fairnotice conform [OPTIONS] -- COMMAND…",
    )
    setattr(parser, RUNS_ANOTHER, True)
    _what_it_does(parser.add_argument_group("what the client does"))
    _what_is_played(parser.add_argument_group("what is played"))
    _what_is_told(parser.add_argument_group("what is told"))
    parser.set_defaults(run=run)


def _what_it_does(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--poll-seconds", type=float, metavar="S", help="how often it asks (it is measured)"
    )
    group.add_argument("--no-acknowledge", action="store_true", help="it only watches")
    group.add_argument(
        "--types",
        type=_types,
        metavar="TYPE,…",
        default=frozenset(EventType),
        help=f"which it acknowledges (all of {', '.join(EventType)})",
    )
    group.add_argument(
        "--first-leads",
        action="store_true",
        help="what names several VMs it leaves to the first of them, as Azure suggests",
    )
    group.add_argument(
        "--once", action="store_true", help="it asks once and ends: run it anew for each poll"
    )
    group.add_argument(
        "--namespace",
        action="store_true",
        help="run it where 169.254.169.254 is its endpoint, as `fairnotice as` does (Linux)",
    )
    group.add_argument(
        "--patience",
        type=float,
        metavar="N",
        default=10.0,
        help="polls in which it has to do what it should (10; at least 5 s)",
    )
    group.add_argument(
        "--stall-seconds",
        type=float,
        metavar="S",
        default=30.0,
        help="after so long without an answer it has to ask anew (30)",
    )


def _what_is_played(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--situation", nargs="+", action="extend", metavar="NAME", help="only these (all)"
    )
    group.add_argument("--jobs", type=from_one, metavar="N", help="side by side (4 for each core)")
    group.add_argument(
        "--list", dest=RUNS_NONE, action="store_true", help="show the situations; none is played"
    )


def _what_is_told(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--junit", type=_file, metavar="FILE", help="write the report as JUnit XML")
    group.add_argument("--json", action="store_true", help="the report as JSON, at the end")
    group.add_argument(
        "--verbose", action="store_true", help="show all that it printed, also where it survived"
    )


# ---- What is typed ----


def _types(text: str) -> frozenset[EventType]:
    known = {one.lower(): one for one in EventType}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word.lower() not in known:
            all_types = ", ".join(EventType)
            raise argparse.ArgumentTypeError(f"{word!r} is no type of event; there are {all_types}")
    return frozenset(known[word.lower()] for word in words)


def _file(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("the table goes to standard output; give a file")
    return Path(text)


# ---- Running ----


def run(options: argparse.Namespace) -> int:
    """Play what was asked for; the exit code."""
    # Imported when called: the help of a command needs no service.
    from fairnotice.testing.conform import conform, junit  # noqa: PLC0415
    from fairnotice.testing.conform.player import chosen_situations  # noqa: PLC0415

    chosen = chosen_situations(options.situation)
    if getattr(options, RUNS_NONE):
        return _show_list(options)
    if options.junit is not None:
        _must_be_writable(options.junit)
    # Every fault that is set is logged, which is of no use to whoever asked for it.
    logging.getLogger("fairnotice.metadata").setLevel(logging.ERROR)
    with _progress(len(chosen)) as progress:
        report = conform(
            _declared(options),
            options.situation,
            jobs=options.jobs,
            begun=progress.begun,
            told=progress.told,
        )
    if options.json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(report, verbose=options.verbose)
    if options.junit is not None:
        options.junit.write_bytes(junit(report))
        print(f"JUnit XML: {options.junit}", file=sys.stderr)
    return exits.DONE if report.survived else exits.REFUSED


def _declared(options: argparse.Namespace) -> "Declared":
    from fairnotice.testing.conform import Declared  # noqa: PLC0415 - as above

    return Declared(
        command=tuple(options.behind),
        poll_seconds=options.poll_seconds,
        acknowledges=not options.no_acknowledge,
        types=options.types,
        first_leads=options.first_leads,
        once=options.once,
        patience=options.patience,
        stall_seconds=options.stall_seconds,
        namespace=options.namespace,
    )


def _must_be_writable(path: Path) -> None:
    """Said now, and not when all has been played."""
    try:
        path.touch()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CommandFailed(f"{path} cannot be written: {why}.", exits.WRONG_USAGE) from error


class _Progress:
    """How far it is, told to a person; whoever reads a pipe is told at the end."""

    def __init__(self, count: int, say: Callable[[str], None]) -> None:
        self._count, self._say = count, say
        self._done = self._failed = 0
        self._lock = Lock()

    def begun(self) -> None:
        """How often it asks is known."""
        self._tell()

    def told(self, result: "Result") -> None:
        """One more has been played."""
        with self._lock:
            self._done += 1
            self._failed += result.verdict == "failed"
            self._tell()

    def _tell(self) -> None:
        more = f", {self._failed} failed" if self._failed else ""
        self._say(f"{self._done} of {self._count} situations{more}")


@contextmanager
def _progress(count: int) -> Iterator[_Progress]:
    from rich.console import Console  # noqa: PLC0415 - as above

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Progress(count, lambda _: None)
        return
    with console.status("looking whether, and how often, it asks") as status:
        yield _Progress(count, status.update)


# ---- Showing ----


def _show_list(options: argparse.Namespace) -> int:
    from fairnotice.cli import shown  # noqa: PLC0415 - as above
    from fairnotice.testing.conform.player import chosen_situations  # noqa: PLC0415

    chosen = chosen_situations(options.situation)
    if options.json:
        told = ("name", "shows", "right", "source")
        rows = [{name: getattr(one, name) for name in told} for one in chosen]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        lines = ((one.name, one.shows) for one in chosen)
        shown.say(shown.table(("SITUATION", "[WHAT HAPPENS]"), lines))
    return exits.DONE


def _show(report: "Report", *, verbose: bool) -> None:
    from fairnotice.cli import shown  # noqa: PLC0415 - as above
    from fairnotice.testing.conform import Verdict  # noqa: PLC0415

    # What it printed may be long: the table is what is to be seen when all has been said.
    _show_printed(report, verbose=verbose)
    rows = ((one.situation, shown.styled(one.verdict), one.why) for one in report.results)
    shown.say(shown.table(("SITUATION", "VERDICT", "[WHY]"), rows))
    counts = ((report.count(verdict), verdict) for verdict in Verdict)
    told = ", ".join(f"{count} {verdict}" for count, verdict in counts if count)
    interval = report.declared.interval_seconds
    shown.say("", f"{told}; it asks every {interval:.2g} s; {report.seconds:.0f} s.")


def _show_printed(report: "Report", *, verbose: bool) -> None:
    """What it printed, once where that was the same in several situations; else only the end."""
    from fairnotice.cli import shown  # noqa: PLC0415 - as above
    from fairnotice.testing.conform import Verdict  # noqa: PLC0415

    printed: dict[str, list[str]] = {}
    for one in report.results:
        lines = one.output.rstrip().splitlines()
        if not lines or not (verbose or one.verdict is Verdict.FAILED):
            continue
        end = lines if verbose else lines[-SHOWN_LINES:]
        more = len(lines) - len(end)
        cut = [f"… ({more} lines more: --verbose)"] if more else []
        printed.setdefault("\n".join(f"  {line}" for line in (*cut, *end)), []).append(
            one.situation
        )
    for text, situations in printed.items():
        shown.say(shown.title(shown.listed(situations), "what it printed"), text, "")
