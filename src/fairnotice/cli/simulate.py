"""`fairnotice simulate`: random fleets under the law, checked at every step."""

import argparse
import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from fairnotice.cli.parsing import Subparsers, examples, from_one, sentence

# Where the numbers of the simulator's table begin.
COLUMN = 18
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

    given = ((name, getattr(options, name)) for name in NAMES)
    words = [f"--{name}={value}" for name, value in given if value is not None]
    if not options.json:
        return simulate.main(words)
    with redirect_stdout(StringIO()) as printed:
        code = simulate.main(words)
    print(json.dumps(_numbers(printed.getvalue().splitlines()), indent=2, ensure_ascii=False))
    return code


def _numbers(lines: list[str]) -> dict[str, Any]:
    """What the simulator printed, for a program: its numbers, and what it says of failures."""
    first = next(place for place, line in enumerate(lines) if line.startswith("seeds  "))
    found: dict[str, Any] = {}
    for line in lines[first:]:
        name, value = line[:COLUMN].strip().replace(" ", "_"), line[COLUMN:].replace(",", "")
        number, _, rest = value.partition(" ")
        found["took_seconds" if name == "took" else name] = json.loads(number)
        if rest.endswith("refused)"):
            found["refused"] = int(rest.strip("()").partition(" ")[0])
    return {**found, "report": [line for line in lines[:first] if line]}
