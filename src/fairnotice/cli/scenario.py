"""`fairnotice scenario`: ready stories, played with VMs that look, and the promise checked."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

from fairnotice.cli import exits, settings
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import WORDS, config_option
from fairnotice.cli.remote import Remote, metadata_elsewhere
from fairnotice.cli.session import Session
from fairnotice.clock import SystemClock
from fairnotice.control.scenario_play import Line
from fairnotice.control.scenario_sites import Site, place_of, running_site, throw_away
from fairnotice.control.scenarios import (
    SCENARIOS,
    Played,
    Scenario,
    play,
    play_side_by_side,
)
from fairnotice.engine import PROFILES
from fairnotice.errors import Unavailable, UsageError

EXAMPLES = """examples:
  fairnotice scenario list
  fairnotice scenario run user-reboot             # in a service of its own, thrown away afterwards
  fairnotice scenario run all                     # side by side, about 40 s
  fairnotice scenario run all --json
  fairnotice scenario run rollout --url http://127.0.0.1:8600      # in the one that is running

Without --url no service is touched, whatever FAIRNOTICE_URL says. With it the scenario really
happens there: nodes are rebooted and fail, VMs move. It needs the sample fleet, and no events.
Exit codes: 0 every promise was kept; 1 one was broken, and it says which, or it cannot be played
there; 3 there is no such scenario; 4 nobody answers there.
"""
ALL = "all"


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the group."""
    group = subparsers.add_parser(
        "scenario",
        help="play ready stories and check that the platform keeps its promise",
        description="Play ready stories with VMs that poll, and check what was promised.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = group.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser(
        "list",
        help="the scenarios there are",
        description="The scenarios there are, and what each shows.",
        epilog="examples:\n  fairnotice scenario list\n",
        parents=[config_option()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=show_list)
    running = commands.add_parser(
        "run",
        help="play one, several or all",
        description="Play scenarios; says what each VM saw and when, and what was broken.",
        epilog=EXAMPLES,
        parents=[config_option()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = running.add_argument("names", nargs="+", metavar="NAME", help=f"a scenario, or {ALL}")
    setattr(names, WORDS, (*SCENARIOS, ALL))
    running.add_argument("--json", action="store_true", help="as JSON, when all are over")
    # It may stand in front of the command, too, and then must not be forgotten here.
    running.add_argument(
        "--url",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="play it in the control plane that runs here",
    )
    running.add_argument(
        "--metadata-url",
        metavar="URL",
        help="with --url: its metadata endpoint, where it does not say itself which that is",
    )
    running.add_argument(
        "--timing",
        choices=tuple(PROFILES),
        default="dev",
        help="the notice that is promised (dev); with --url that of the running service",
    )
    running.set_defaults(run=run)


def show_list(arguments: argparse.Namespace) -> int:
    """Print what there is."""
    if arguments.json:
        rows = [{"name": one.name, "summary": one.summary} for one in SCENARIOS.values()]
        _write(json.dumps(rows, indent=2))
        return exits.DONE
    width = max(map(len, SCENARIOS))
    for one in SCENARIOS.values():
        _write(f"{one.name:{width}}  {one.summary}")
    return exits.DONE


def run(arguments: argparse.Namespace) -> int:
    """Play what was asked for; the exit code."""
    unknown = [name for name in arguments.names if name != ALL and name not in SCENARIOS]
    if unknown:
        _complain(_unknown(unknown[0]))
        return exits.NOT_FOUND
    names = SCENARIOS if ALL in arguments.names else dict.fromkeys(arguments.names)
    try:
        site = _site(arguments)
    except UsageError as error:
        _complain(str(error))
        return exits.WRONG_USAGE
    except CommandFailed as error:
        _complain(str(error))
        return error.code
    try:
        played = asyncio.run(_play([SCENARIOS[name] for name in names], site, arguments))
    except UsageError as error:
        _complain(str(error))
        return exits.REFUSED
    except Unavailable as error:
        _complain(f"{error} Start a service with fairnotice up, or leave out --url.")
        return exits.UNREACHABLE
    if arguments.json:
        _write(json.dumps([_as_json(one) for one in played], indent=2))
    elif len(played) > 1:
        kept = sum(one.kept for one in played)
        _write(f"{kept} of {len(played)} scenarios kept the promise.")
    return exits.DONE if all(one.kept for one in played) else exits.REFUSED


def _site(arguments: argparse.Namespace) -> Site | None:
    """The running service that was named; None where none was."""
    known = settings.of_options(arguments)
    url = known["url"]
    # Only a flag names one: nobody's fleet is played with because of a variable.
    if url.origin != settings.BY_NAME["url"].flag:
        return None
    place_of(url.value)
    session = Session(arguments)
    metadata = _metadata(known, url.value, session.remote)
    return running_site(url.value, metadata, PROFILES[arguments.timing], session.token)


def _metadata(known: Mapping[str, settings.Known], control: str, remote: Remote) -> str:
    """Where this control plane serves metadata: it says so itself, and no other's will do."""
    health = remote.health()
    url = settings.metadata_url(known, health)
    right = metadata_elsewhere(url, control, health)
    if right is not None:
        sentence = f"{url} is another's: {control} serves metadata at {right}"
        raise UsageError(f"{sentence}. Leave out --metadata-url.")
    return url


async def _play(
    scenarios: list[Scenario], site: Site | None, arguments: argparse.Namespace
) -> list[Played]:
    clock, timing = SystemClock(), PROFILES[arguments.timing]
    if site is not None:
        # There is one fleet: one story after the other.
        return [await _play_live(one, site, quiet=arguments.json) for one in scenarios]
    if len(scenarios) == 1:
        async with throw_away(clock, timing) as own:
            return [await _play_live(scenarios[0], own, quiet=arguments.json)]
    played = await play_side_by_side(scenarios, lambda: throw_away(clock, timing), clock)
    if not arguments.json:
        for one in played:
            with _headed(one.name, one.summary):
                for line in one.lines:
                    _write(f"  {line}")
                _conclude(one)
    return played


async def _play_live(scenario: Scenario, site: Site, *, quiet: bool) -> Played:
    """One scenario, its lines as they come."""
    if quiet:
        return await play(scenario, site, SystemClock())
    with _headed(scenario.name, scenario.summary):
        played = await play(scenario, site, SystemClock(), _tell)
        _conclude(played)
    return played


# ---- Words ----


@contextmanager
def _headed(name: str, summary: str) -> Iterator[None]:
    _write(f"{name}: {summary}")
    yield
    _write("")


def _tell(line: Line) -> None:
    _write(f"  {line}")


def _conclude(played: Played) -> None:
    if played.kept:
        _write(f"  The promise was kept ({played.took_seconds:.1f} s).")
    for sentence in played.broken:
        _complain(f"{played.name}: {sentence}")


def _as_json(played: Played) -> dict[str, object]:
    return {
        "name": played.name,
        "summary": played.summary,
        "kept": played.kept,
        "broken": list(played.broken),
        "took_seconds": round(played.took_seconds, 3),
        "timeline": [line._asdict() for line in played.lines],
    }


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), SCENARIOS, 1, cutoff=0.4)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is no scenario {name}.{meant} What there is: fairnotice scenario list."


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
