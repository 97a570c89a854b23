"""`fairnotice up`: the whole service on this machine, to try out and to test against."""

import argparse
import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import uvloop

from fairnotice.arm.serving import opened_for_this_machine
from fairnotice.cli import settings
from fairnotice.cli.azure_files import service_directory
from fairnotice.cli.logs import FORMATS, log_to_standard_error
from fairnotice.clock import Clock, SystemClock
from fairnotice.control.fleet_body import FleetBody, specification
from fairnotice.control.fleet_files import read_toml, sample_fleet
from fairnotice.control.holders import is_loopback
from fairnotice.control.running import BESIDE, Beside, Place, Plan, Running, running
from fairnotice.drivers.simulated.driver import SimulatedDriver, machines_beside
from fairnotice.engine import PROFILES, Refusal
from fairnotice.engine.refusal import Code
from fairnotice.errors import CannotListen, StoreInUse, UsageError
from fairnotice.metadata.rate import BURST, DEFAULT, Rate, rate_of
from fairnotice.portal.portal import portal
from fairnotice.stores.opening import open_lease_alone, open_store, sqlite_file

log = logging.getLogger(__name__)

EXAMPLES = """examples:
  fairnotice up                            # the sample fleet, kept between starts
  fairnotice up --store memory:            # the same, forgotten at the end
  fairnotice up --fleet fleet.toml         # your own fleet
  fairnotice up --timing azure             # notice of minutes, as on Azure, instead of seconds
  fairnotice up --control 127.0.0.1:9600   # where the page and the API are
"""
METADATA = Place("127.0.0.1", 8169)
CONTROL = Place("127.0.0.1", 8600)
ARM = Place("127.0.0.1", 8643)


# What may be over by itself, where the service runs.
IN_THE_WAY = (Code.CONFLICT, Code.NO_ROOM)


class FleetFile(NamedTuple):
    """What `--fleet` names."""

    path: str
    body: FleetBody


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "up",
        help="run the whole service on this machine",
        description="Run the whole service on this machine, with simulated VMs, until Ctrl-C.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fleet", metavar="FILE", help="a fleet file; default: the sample fleet")
    parser.add_argument("--store", metavar="URL", help="memory:, sqlite:PATH or postgresql://…")
    parser.add_argument("--timing", choices=tuple(PROFILES), help="how long notice is (dev)")
    parser.add_argument("--metadata", metavar="HOST:PORT", help=f"default {METADATA}")
    parser.add_argument("--control", metavar="HOST:PORT", help=f"default {CONTROL}")
    parser.add_argument("--arm", metavar="HOST:PORT|off", help=f"for Azure's tools; default {ARM}")
    parser.add_argument("--rate-limit", metavar="N|off", help="requests a second and VM (5)")
    parser.add_argument("--log-format", choices=FORMATS, help="of standard error (text)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the service until it is told to end; the exit code."""
    file = _fleet(arguments.fleet)
    log_to_standard_error(arguments.log_format or "text")
    try:
        uvloop.run(up(_plan(arguments), file, _say))
    except StoreInUse as error:
        raise StoreInUse(f"{error} {BESIDE}") from error
    except CannotListen as error:
        beside = f" {BESIDE}" if error.taken else ""
        elsewhere = f"Choose another with --{error.what} HOST:PORT.{beside}"
        raise UsageError(f"{error} {elsewhere}") from error
    return 0


async def up(plan: Plan, file: FleetFile | None, say: Callable[[str], None]) -> None:
    """Run the service until somebody presses Ctrl-C, or ends it politely."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with running(plan) as run:
        await declare(run, file)
        say(welcome(run))
        await ended.wait()
        say("ending")


async def declare(run: Running, file: FleetFile | None) -> None:
    """Apply the fleet that was asked for; the sample fleet where there is none yet.

    Where there is one, it stays while something is in the way of another: an event, or a place that
    is taken by whom an impact moves, is over only when the service runs. A file that is wrong stays
    so.
    """
    there = bool(run.service.fleet.nodes)
    if file is None and there:
        return
    wanted = sample_fleet() if file is None else file.body
    refusal = await run.service.apply_fleet(specification(wanted))
    if not isinstance(refusal, Refusal):
        return
    if file is None or not there or refusal.code not in IN_THE_WAY:
        raise UsageError(f"The fleet cannot be applied. {refusal}")
    later = shlex.join(("fairnotice", "fleet", "apply", file.path))
    log.warning("%s is not applied, the fleet is as it was: %s Then: %s", file.path, refusal, later)


# ---- What it is made of ----


def _plan(arguments: argparse.Namespace) -> Plan:
    clock = SystemClock()
    url, machines = _where(arguments.store)
    metadata = _place(arguments.metadata, METADATA, "metadata")
    return Plan(
        store=open_store(url),
        lease=open_lease_alone(url),
        driver=SimulatedDriver(clock, path=machines),
        clock=clock,
        timing=PROFILES[arguments.timing or "dev"],
        metadata=metadata,
        control=_place(arguments.control, CONTROL, "control"),
        # Off loopback anybody could say that he is any VM.
        prefix_allowed=is_loopback(metadata.host),
        rate_limit=_rate(arguments.rate_limit),
        store_url=settings.hidden(url),
        fronts=portal,
        beside=_arm(arguments, url, clock),
    )


def _arm(arguments: argparse.Namespace, store: str, clock: Clock) -> Beside | None:
    """The port of Azure's tools, with a certificate and keys of its own; None where it is off."""
    if arguments.arm == "off":
        return None
    # A second service beside one that has the port needs not be told so.
    usual = ARM if arguments.control is None else ARM._replace(port=0)
    place = _place(arguments.arm, usual, "arm")
    _must_be_loopback(place)
    return opened_for_this_machine(place, service_directory(store), clock)


def _must_be_loopback(place: Place) -> None:
    """Whoever reaches it may do everything: nobody is asked who he is."""
    if not is_loopback(place.host):
        raise UsageError(
            f"--arm is {place}, which others can reach, and nobody is asked who he is there. "
            "Choose an address of this machine's own: --arm 127.0.0.1:PORT."
        )


def _where(store: str | None) -> tuple[str, Path | None]:
    """The store's URL, and where the simulated machines are remembered if anything is."""
    url = store or _usual_store()
    path = sqlite_file(url)
    if path is None:
        return url, None
    if store is None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path.parent} cannot be made: {error.strerror}. Choose a store with --store."
            ) from error
    return url, machines_beside(path)


def _usual_store() -> str:
    return settings.BY_NAME["store"].default()


def _fleet(path: str | None) -> FleetFile | None:
    if path is None:
        return None
    try:
        return FleetFile(path, read_toml(Path(path).read_text(encoding="utf-8"), path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def _place(text: str | None, default: Place, name: str) -> Place:
    if text is None:
        return default
    found = settings.place(text)
    if found is None:
        raise UsageError(f"--{name} is {text!r}: give HOST:PORT, for example {default}.")
    return Place(*found)


def _rate(text: str | None) -> Rate | None:
    if text is None:
        return DEFAULT
    if text == "off":
        return None
    try:
        per_second = float(text)
    except ValueError:
        per_second = 0.0
    if not 0 < per_second < float("inf"):
        raise UsageError(f"--rate-limit is {text!r}: give requests a second, or off.")
    return rate_of(per_second, BURST)


# ---- What it says ----


def lines(run: Running) -> dict[str, str]:
    """Three lines to copy, each with what it does: on a VM of the fleet that there is."""
    vms = run.service.fleet.vms
    vm = "web-0" if "web-0" in vms else next(iter(vms), "NAME")
    control = f"http://{run.control}/v1"
    restart = shlex.quote(f"{control}/vms/{quote(vm, safe='')}/restart")
    return {
        _reading(run, vm): f"curl -s -H Metadata:true {shlex.quote(_target(run, vm))}",
        f"restart {vm}": f"curl -s -X POST {restart}",
        f"approve what is announced to {vm}": (
            f"curl -s '{control}/events?status=Scheduled' | python3 -c {shlex.quote(FIRST_ID)} "
            f"{shlex.quote(vm)} | xargs -I ID curl -s -X POST {control}/events/ID/approve"
        ),
    }


# Prints the id of the first event that names this VM; or a name that the API knows nothing of.
# People read it: between the shell's single quotes, double ones need nothing in front of them.
FIRST_ID = (
    'import json,sys; named=[e["id"] for e in json.load(sys.stdin)["items"] '
    'if sys.argv[1] in e["resources"]]; print((named or ["NOTHING-IS-ANNOUNCED"])[0])'
)


def _reading(run: Running, vm: str) -> str:
    if run.prefix_allowed:
        return f"read what {vm} reads"
    return f"read what {vm} reads: from an address of its own"


def _target(run: Running, vm: str) -> str:
    prefix = f"/vm/{quote(vm, safe='')}" if run.prefix_allowed else ""
    return f"http://{run.metadata}{prefix}/metadata/scheduledevents?api-version=2020-07-01"


# Where metadata is they are told there.
FOUND_BY = "# in other terminals, so that the commands of fairnotice find it"


def welcome(run: Running) -> str:
    """What a person reads in the terminal."""
    said = [f"fairnotice is up: http://{run.control}/   (Ctrl-C ends it)", ""]
    exports = list(_exports(run))
    if exports:
        said += [FOUND_BY, *exports, ""]
    for what, line in lines(run).items():
        said += [f"# {what}", line, ""]
    if run.arm is not None:
        said += [
            f"# Azure's own az, at https://localhost:{run.arm.port}/ (docs/guides/azure-tools.md)",
            f'eval "$({_program()} az-login)" && az vm list -o table',
            "",
        ]
    return "\n".join(said)


def _exports(run: Running) -> Iterator[str]:
    """What is not as usual, and so is not known in other terminals, which may be anywhere."""
    if run.control != CONTROL:
        yield f"export FAIRNOTICE_URL=http://{run.control}"
    path = sqlite_file(run.store)
    # Beside its file is what az-login trusts.
    if run.arm is not None and path is not None and run.store != _usual_store():
        yield f"export FAIRNOTICE_STORE={shlex.quote(f'sqlite:{path.absolute()}')}"


def _program() -> str:
    """What starts this program in any other terminal, whatever is in its PATH."""
    own = Path(sys.executable).with_name("fairnotice")
    return shlex.quote(str(own)) if own.exists() else "fairnotice"


def _say(text: str) -> None:
    print(text, flush=True)
