"""The driver that runs the operator's commands, each through run.sh.

Exactly once, with a `state_directory`: run.sh writes there what has begun before it begins, and
how it ended, and goes on when the control plane is killed. Without one, the same happens in a
directory that is gone with this object, and a key that it has not begun itself is unknown to it,
unless the outcome command knows: at most once.

Neither cancellation nor close() stops a command that is under way: half a migration is worse than
one that nobody waits for. Under systemd this needs KillMode=process, since run.sh is a child of
the service. When a time limit stops a command, its whole process group is stopped.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fairnotice.clock import Clock
from fairnotice.drivers.command.answers import read_found, read_outcome
from fairnotice.drivers.command.processes import Wrappers, ask
from fairnotice.drivers.command.settings import CommandLine, CommandSettings
from fairnotice.drivers.command.state import State, file_name, kept_since
from fairnotice.drivers.driver import Capabilities, Found, Order, Report
from fairnotice.errors import LeadLost, Unavailable, UsageError
from fairnotice.words import Outcome

_WRAPPER = Path(__file__).with_name("run.sh")
_SHELL = "/bin/sh"
_TOOLS = ("flock", "timeout", "sync")
# What the service was told and its commands are not: a secret, and where systemd listens to it.
_OURS = ("FAIRNOTICE_TOKEN", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
_DAY_SECONDS = 86_400.0
# To timeout(1), 0 would mean that there is none.
_LIMIT_SECONDS_MIN = 0.1
_ASK_AGAIN_SECONDS = 1.0


class CommandDriver:
    """Carries out impacts by running command lines."""

    def __init__(self, settings: CommandSettings, clock: Clock) -> None:
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise UsageError(f"The command driver needs {', '.join(missing)} on this machine.")
        self._settings = settings
        self._clock = clock
        self._wrappers = Wrappers()
        self._closed = False
        self._state = State(_make_directory(settings), settings.output_bytes_max)
        self._durable = settings.state_directory is not None
        self._forgot_at = clock.monotonic()
        self._capabilities = Capabilities(
            name="command",
            kinds=frozenset(settings.commands),
            answers=self._durable or bool(settings.outcome),
            discovers=bool(settings.discover),
        )

    # ---- The port ----

    def capabilities(self) -> Capabilities:
        """The kinds that have a command; it answers if it has somewhere to remember."""
        return self._capabilities

    async def impact(self, order: Order, epoch: int) -> Report:
        """Run the command of this kind, or wait for the one of the same key."""
        await self._check_epoch(epoch)
        command = self._settings.commands.get(order.kind)
        if command is None:
            return Report(Outcome.FAILED, f"no command is configured for {order.kind}")
        if self._settings.outcome and not self._durable:
            # What an earlier life has begun, only the operator's own command can tell.
            known = await self._known(order.key, epoch)
            if known is not None:
                return known
        await self._forget_old()
        return await self._run(order, epoch, command)

    async def outcome(
        self,
        key: str,
        epoch: int,
        failed_nodes: frozenset[str] = frozenset(),  # noqa: ARG002 - what ran is written here
    ) -> Report:
        """What became of this key, by what is written, or by the outcome command."""
        self._check_open()
        written = await asyncio.to_thread(self._state.look, key, epoch)
        new = written.outcome is Outcome.NOT_BEGUN
        if new and self._durable:
            return written
        if new or written.outcome is Outcome.UNKNOWN:
            return await self._ask_outcome(key, epoch, written)
        return written

    async def discover(self, epoch: int) -> tuple[Found, ...]:
        """What the discover command prints; nothing without one."""
        await self._check_epoch(epoch)
        if not self._settings.discover:
            return ()
        return read_found(await self._ask("discover", self._settings.discover, epoch))

    async def close(self) -> None:
        """Let go; commands that are under way go on."""
        if not self._closed:
            self._closed = True
            self._wrappers.bury()
            if not self._durable:
                await asyncio.to_thread(shutil.rmtree, self._state.directory, ignore_errors=True)

    # ---- Impacts ----

    async def _run(self, order: Order, epoch: int, command: CommandLine) -> Report:
        words = self._wrapped(order, epoch, command)
        said = await self._wrappers.run(words, _environment(order, epoch))
        if said == "older":
            raise LeadLost(f"Epoch {epoch} is over: a later one has begun.")
        if said == "unwritable":
            raise Unavailable(await asyncio.to_thread(self._state.why_unwritable))
        # Whatever epoch has begun meanwhile: this is the outcome of what was ours to begin.
        written = await asyncio.to_thread(self._state.look, order.key, None)
        if written.outcome is Outcome.NOT_BEGUN:
            raise Unavailable(f"What was to run {order.key} ended before it began.")
        if written.outcome is Outcome.UNKNOWN:
            return await self._ask_outcome(order.key, epoch, written)
        return written

    def _wrapped(self, order: Order, epoch: int, command: CommandLine) -> list[str]:
        limit_seconds = min(order.limit_seconds, self._settings.limit_seconds)
        return [
            _SHELL,
            str(_WRAPPER),
            str(self._state.directory),
            file_name(order.key),
            str(epoch),
            f"{max(limit_seconds, _LIMIT_SECONDS_MIN):.3f}",
            f"{self._settings.kill_after_seconds:.3f}",
            *command,
        ]

    async def _known(self, key: str, epoch: int) -> Report | None:
        """How a key that was begun before has ended, waiting for it; None if it may be begun."""
        report = await self.outcome(key, epoch)
        while report.outcome is Outcome.UNDER_WAY:
            await self._clock.sleep(_ASK_AGAIN_SECONDS)
            report = await self.outcome(key, epoch)
        return report if report.outcome in (Outcome.DONE, Outcome.FAILED) else None

    async def _forget_old(self) -> None:
        """Once a day remove what ended long ago, and never in the first day of a life.

        After a long downtime the first thing to be asked is what became of old keys.
        """
        now = self._clock.monotonic()
        if self._durable and now - self._forgot_at >= _DAY_SECONDS:
            self._forgot_at = now
            since = kept_since(self._clock.wall(), self._settings.kept_days)
            # It is tidying: no impact fails for it.
            with contextlib.suppress(Unavailable):
                await asyncio.to_thread(self._state.forget, since)

    # ---- Questions ----

    async def _ask_outcome(self, key: str, epoch: int, written: Report) -> Report:
        """The outcome command's word where there is one; what is not known is unknown."""
        if self._settings.outcome:
            said = await self._ask("outcome", self._settings.outcome, epoch, key)
            report = read_outcome(said, self._settings.output_bytes_max)
            if report.outcome is Outcome.NOT_BEGUN and written.outcome is Outcome.UNKNOWN:
                # What ran it died before it did anything; the operator knows, so it is new again.
                await asyncio.to_thread(self._state.take_back, key, epoch)
            return report
        if written.outcome is Outcome.UNKNOWN:
            return written
        return Report(Outcome.UNKNOWN, "it was not begun in this life of the control plane")

    async def _ask(self, name: str, command: CommandLine, epoch: int, key: str = "") -> str:
        environment = {**_inherited(), "FAIRNOTICE_KEY": key, "FAIRNOTICE_EPOCH": str(epoch)}
        return await ask(name, command, environment, self._settings.question_limit_seconds)

    async def _check_epoch(self, epoch: int) -> None:
        self._check_open()
        await asyncio.to_thread(self._state.check_epoch, epoch)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The command driver is closed.")


def _make_directory(settings: CommandSettings) -> Path:
    directory = settings.state_directory
    try:
        if directory is None:
            return Path(tempfile.mkdtemp(prefix="fairnotice-command-"))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"state_directory cannot be {directory}: {error.strerror}.") from error
    return directory


def _inherited() -> dict[str, str]:
    """The environment of the service, without what is no command's business."""
    return {name: text for name, text in os.environ.items() if name not in _OURS}


def _environment(order: Order, epoch: int) -> Mapping[str, str]:
    return {
        **_inherited(),
        "FAIRNOTICE_KEY": order.key,
        "FAIRNOTICE_VM": order.vm,
        "FAIRNOTICE_KIND": order.kind.value,
        "FAIRNOTICE_NODE": order.node or "",
        "FAIRNOTICE_TARGET": order.target or "",
        "FAIRNOTICE_EVENT": order.event or "",
        "FAIRNOTICE_DURATION_SECONDS": str(order.duration_seconds),
        "FAIRNOTICE_EPOCH": str(epoch),
    }
