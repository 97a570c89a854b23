"""`fairnotice simulate`: random fleets under the law, checked at every step."""

import argparse
import json

from fairnotice.cli.parsing import Subparsers, examples, from_one, sentence
from fairnotice.clock import SystemClock
from fairnotice.errors import UsageError

NAMES = ("seeds", "first", "seed", "steps", "jobs")


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    summary = "drive random fleets through the law and look for violations"
    lines = (
        "fairnotice simulate --seeds 200",
        "fairnotice simulate --seed 17    # one, in full",
        "fairnotice simulate --json",
    )
    parser = subparsers.add_parser(
        "simulate", help=summary, description=sentence(summary), epilog=examples(lines)
    )
    parser.add_argument("--seeds", type=from_one, metavar="N", help="how many (200)")
    parser.add_argument("--first", type=int, metavar="N", help="the first of them (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="this one only, in full")
    parser.add_argument("--steps", type=from_one, metavar="N", help="of each seed")
    parser.add_argument("--jobs", type=from_one, metavar="N", help="seeds side by side")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON, at the end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the simulator; its exit code."""
    # Imported when called: the help of a command needs no engine.
    from fairnotice.testing import simulate  # noqa: PLC0415

    if options.seed is not None and (options.seeds, options.first) != (None, None):
        raise UsageError("--seed is one, --seeds and --first are many: give one or the other.")
    given = ((name, getattr(options, name)) for name in NAMES)
    words = [f"--{name}={value}" for name, value in given if value is not None]
    if not options.json:
        return simulate.main(words)
    outcome = simulate.simulated(words, SystemClock())
    found = {**outcome.numbers._asdict(), "report": outcome.report}
    print(json.dumps(found, indent=2, ensure_ascii=False))
    return outcome.code
