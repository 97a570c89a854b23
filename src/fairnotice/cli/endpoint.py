"""`fairnotice endpoint`: the metadata endpoint of one node, fed by control planes elsewhere."""

import argparse
import asyncio
import logging
import signal
from pathlib import Path

import uvloop

from fairnotice.cli import exits, shown
from fairnotice.cli.endpoint_check import doubts, not_looked_at
from fairnotice.cli.logs import log_to_standard_error
from fairnotice.cli.parsing import Subparsers, examples
from fairnotice.clock import Clock, SystemClock
from fairnotice.endpoint.config import FILE, Config, read
from fairnotice.endpoint.passing import Passing
from fairnotice.endpoint.running import Running, running
from fairnotice.errors import CannotListen
from fairnotice.systemd import reloading, tell_systemd, watchdog_seconds

log = logging.getLogger(__name__)

EXAMPLES = (
    "fairnotice endpoint                              # as /etc/fairnotice/endpoint.toml says",
    "fairnotice endpoint --config node-7.toml --check # say what is wrong with it, start nothing",
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "endpoint",
        help="only the metadata endpoint, one per node",
        description="Serve the VMs of this node, as control planes elsewhere say, until SIGTERM. "
        "SIGHUP reads the token and whom to trust again.",
        epilog=examples(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, default=FILE, help=f"default {FILE}")
    parser.add_argument("--check", action="store_true", help="say what is wrong; start nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the endpoint until it is told to end; the exit code."""
    config = read(arguments.config)
    # Each of them as it is when it runs: URLs, the token, and whom to trust.
    Passing(config.node, config.control_planes, token=config.token, trust=config.trusted())
    if arguments.check:
        return _checked(arguments.config, config)
    # Until it can read anything again, nobody ends it by asking for that.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log_to_standard_error(config.logging.format, config.logging.level)
    try:
        uvloop.run(serve(config))
    except CannotListen as error:
        raise exits.by_its_key(arguments.config, error) from error
    return exits.DONE


def _checked(path: Path, config: Config) -> int:
    found = list(doubts(config))
    fits = "can be read, but no VM would be answered now" if found else "is as it should be"
    print(f"{path} {fits}. {not_looked_at(config)}")
    for doubt in found:
        shown.note(doubt)
    return exits.REFUSED if found else exits.DONE


async def serve(config: Config) -> None:
    """Serve until somebody ends it politely."""
    ended, hung_up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    clock = SystemClock()
    async with (
        running(config, clock) as endpoint,
        endpoint.link.loops.beside(
            renewing=lambda: _renewing(hung_up, endpoint, clock),
            telling=lambda: telling(endpoint, clock),
        ),
    ):
        ready = asyncio.ensure_future(endpoint.ready.wait())
        over = asyncio.ensure_future(ended.wait())
        await asyncio.wait((ready, over), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            tell_systemd("READY=1")
            print(_where(config, endpoint), flush=True)
        await over
        ready.cancel()
        tell_systemd("STOPPING=1")


async def _renewing(hung_up: asyncio.Event, endpoint: Running, clock: Clock) -> None:
    """Read the token and whom to trust again, as often as somebody asks for it."""
    while True:
        await hung_up.wait()
        hung_up.clear()
        # One that has nothing to show yet is not ready again afterwards.
        ready = endpoint.ready.is_set()
        if ready:
            tell_systemd(reloading(clock.monotonic()))
        await endpoint.renew()
        if ready:
            tell_systemd("READY=1")


async def telling(endpoint: Running, clock: Clock) -> None:
    """Tell systemd that it goes on, where systemd wants to hear that, and for as long as it does.

    Where a part of it is stuck, systemd ends it and starts it anew.
    """
    watchdog = watchdog_seconds()
    while watchdog is not None:
        if stuck := endpoint.stuck():
            log.error("stuck, and to be started anew: %s", ", ".join(stuck))
        else:
            tell_systemd("WATCHDOG=1")
        await clock.sleep(watchdog / 2)


def _where(config: Config, endpoint: Running) -> str:
    said = f"serving the VMs of {config.node} on {config.metadata[0]}:{endpoint.port}"
    if config.metrics is not None:
        said += f", metrics on {config.metrics[0]}:{endpoint.metrics_port}"
    return said
