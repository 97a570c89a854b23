"""`fairnotice serve`: the control plane for real use, as its configuration file says."""

import argparse
import asyncio
import logging
import os
import signal
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import uvloop

from fairnotice.arm.serving import Port, signing_with
from fairnotice.arm.serving import opened as opened_port
from fairnotice.arm.signing import KeyFile
from fairnotice.cli import exits, settings, shown
from fairnotice.cli.logs import log_to_standard_error
from fairnotice.cli.parsing import examples
from fairnotice.cli.serve_check import doubts, not_looked_at
from fairnotice.cli.serve_config import ServeConfig, read
from fairnotice.cli.serve_opening import opened
from fairnotice.cli.serve_reload import Reload
from fairnotice.clock import Clock, SystemClock
from fairnotice.control.certificates import Certificates
from fairnotice.control.passing_on import Cluster
from fairnotice.control.running import Beside, Entrance, Plan, Running, beside, running
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.driver import Driver
from fairnotice.drivers.simulated.driver import SimulatedDriver, machines_beside
from fairnotice.engine import PROFILES, Timing
from fairnotice.errors import CannotListen
from fairnotice.portal.portal import portal
from fairnotice.stores.opening import open_lease, open_lease_alone, sqlite_file
from fairnotice.stores.store import Store
from fairnotice.systemd import reloading, tell_systemd, watchdog_seconds

log = logging.getLogger(__name__)

FILE = Path("/etc/fairnotice/serve.toml")
EXAMPLES = (
    "fairnotice serve                              # as /etc/fairnotice/serve.toml says",
    "fairnotice serve --config serve.toml --check  # what is wrong with it; starts nothing",
)
# How long an end waits for commands under way: a commit takes milliseconds, a database that
# comes back may take seconds.
PATIENCE_SECONDS = 10
# How often it is looked whether systemd is to be told something else.
STATUS_EVERY_SECONDS = 5.0


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="run the control plane",
        description="Run the control plane as a configuration file says, until SIGTERM. SIGHUP "
        "reads the file again. docs/reference/serve.md has every key.",
        epilog=examples(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", default=FILE, help=f"default {FILE}")
    parser.add_argument("--check", action="store_true", help="say what is wrong; start nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the service until it is told to end; the exit code."""
    path = Path(options.config)
    config = read(path)
    if options.check:
        return _checked(path, config)
    # Until it can be reloaded, nobody ends it by asking for that.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log_to_standard_error(config.log.format, config.log.level)
    try:
        uvloop.run(serve(path, config, SystemClock()))
    except CannotListen as error:
        raise exits.by_its_key(path, error) from error
    return exits.DONE


def _checked(path: Path, config: ServeConfig) -> int:
    print(f"{path} can be served. {not_looked_at(config.driver.kind)}")
    for doubt in doubts(config):
        shown.note(doubt)
    return exits.DONE


async def serve(path: Path, config: ServeConfig, clock: Clock) -> None:
    """Run the service until it is told to end."""
    ended, hung_up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _end, ended)
    for doubt in doubts(config):
        log.warning("%s", doubt)
    entrance = _entrance(config, clock)
    store = await opened(config, entrance, ended)
    if store is None:
        return
    plan = plan_of(config, clock, store, entrance)
    async with running(plan) as run:
        reload = Reload(path, config, run, entrance)
        loop.add_signal_handler(signal.SIGHUP, hung_up.set)
        said = _said(run, entrance)
        log.info("fairnotice serves %s", said)
        tell_systemd(f"READY=1\nSTATUS=Serves {said}")
        async with beside(_reloading(hung_up, reload, clock), _telling(run, said, clock)):
            await ended.wait()
        log.info("fairnotice ends: what is under way is finished")
        tell_systemd("STOPPING=1\nSTATUS=Finishes what is under way")
    log.info("fairnotice has ended")


def _end(ended: asyncio.Event) -> None:
    """The first time politely; whoever says it twice does not want to wait."""
    if ended.is_set():
        log.warning("ended at once, as was asked for twice")
        os._exit(exits.INTERRUPTED)
    ended.set()


# ---- What it is made of ----


def plan_of(config: ServeConfig, clock: Clock, store: Store, entrance: Entrance) -> Plan:
    """What is run."""
    url, place, metadata = config.store_url(), config.metadata_place, config.metadata
    driver = _driver(config, url, clock)
    return Plan(
        store=store,
        driver=driver,
        clock=clock,
        timing=_timing(config),
        metadata=place,
        control=config.control_place,
        # Whoever could say that he is any VM would be believed.
        prefix_allowed=False,
        rate_limit=None if metadata is None else metadata.rate,
        first_answer_delay_seconds=0.0 if metadata is None else metadata.first_answer_delay_seconds,
        store_url=settings.hidden(url),
        auth=config.auth.required,
        fronts=portal,
        entrance=entrance,
        cluster=_cluster(config, url),
        lease=None if config.cluster is not None else open_lease_alone(url),
        beside=_arm(config, clock, entrance),
    )


def _arm(config: ServeConfig, clock: Clock, entrance: Entrance) -> Beside | None:
    """The port of Azure's tools, where there is one."""
    place = config.arm_place
    if config.arm is None or place is None:
        return None
    signing_in = signing_with(KeyFile(Path(config.arm.keys)), clock, config.arm.url)
    return opened_port(Port(place, entrance, signing_in))


def _timing(config: ServeConfig) -> Timing:
    return replace(PROFILES[config.timing], **msgspec.structs.asdict(config.retention))


def _entrance(config: ServeConfig, clock: Clock) -> Entrance:
    return Entrance(
        certificates=None if config.tls is None else Certificates(config.tls.pair, clock),
        behind_proxy=config.control.behind_proxy,
        names=config.names,
        patience_seconds=PATIENCE_SECONDS,
    )


def _cluster(config: ServeConfig, url: str) -> Cluster | None:
    """What makes it one of several, if it is."""
    table = config.cluster
    if table is None:
        return None
    trust = ssl.create_default_context(cafile=table.trust) if table.trust else None
    return Cluster(open_lease(url, table.address, table.lease_seconds), trust)


def _driver(config: ServeConfig, url: str, clock: Clock) -> Driver:
    if config.driver.kind == "command":
        return CommandDriver(config.driver.command, clock)
    if config.driver.kind == "libvirt":
        # Only here: it needs libvirt's library.
        from fairnotice.drivers.libvirt.driver import LibvirtDriver  # noqa: PLC0415

        return LibvirtDriver(config.driver.libvirt, clock)
    log.warning("driver.kind is simulated: no machine is touched")
    file = sqlite_file(url)
    return SimulatedDriver(clock, path=None if file is None else machines_beside(file))


# ---- Beside it ----


def _said(run: Running, entrance: Entrance) -> str:
    said = [f"{entrance.scheme}://{run.control}"]
    if run.arm is not None:
        said.append(f"Azure's tools at {entrance.scheme}://{run.arm}")
    if run.worker is not None:
        said.append(f"VMs at http://{run.metadata}")
    return ", and ".join(said)


async def _reloading(hung_up: asyncio.Event, reload: Callable[[], None], clock: Clock) -> None:
    """Reload as often as somebody asks for it."""
    while True:
        await hung_up.wait()
        hung_up.clear()
        tell_systemd(reloading(clock.monotonic()))
        try:
            reload()
        except Exception:
            log.exception("a reload went wrong")
        tell_systemd("READY=1")


async def _telling(run: Running, said: str, clock: Clock) -> None:
    """Tell systemd that this loop turns, where it wants to hear that, and what is the trouble."""
    watchdog = watchdog_seconds()
    every = STATUS_EVERY_SECONDS if watchdog is None else min(STATUS_EVERY_SECONDS, watchdog / 2)
    serves = told = f"Serves {said}"
    while True:
        if watchdog is not None:
            tell_systemd("WATCHDOG=1")
        why = run.health().why
        status = f"Records nothing: {why}" if why else serves
        if status != told:
            tell_systemd(f"STATUS={' '.join(status.split())}")
            told = status
        await clock.sleep(every)
