"""What faces the VMs: a board made of the feed's lines, and what its readers send."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from fairnotice.clock import Clock
from fairnotice.control.node_lines import (
    Hello,
    NoScope,
    NoVm,
    ScopeIs,
    SnapshotBegins,
    VmIs,
    document_of,
    scope_of,
    vm_of,
)
from fairnotice.endpoint.holding import Told
from fairnotice.endpoint.vouching import Network, Vouching
from fairnotice.metadata.board import Board, FirstSeen
from fairnotice.metadata.identity import Door
from fairnotice.metadata.metrics import exposition
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.respond import About
from fairnotice.metadata.worker import Worker
from fairnotice.model import Node

log = logging.getLogger(__name__)

# How often it is looked which scopes have asked: among all of them, and there is no hurry.
HEAR_SECONDS = 1.0
# How often a scope that asks is heard again.
HEARD_EVERY_SECONDS = 3_600.0
# So long an enabling that is durable waits to be seen in the feed as well.
ENABLED_SECONDS_MAX = 1.0


class Served(NamedTuple):
    """What was served: seen by whom for the first time, and which scopes were heard when."""

    seen: list[FirstSeen]
    heard: list[tuple[str, datetime]]


class Desk(Protocol):
    """Where what VMs send is passed on."""

    async def approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        """The events that the VM's scope never saw; Unavailable where it cannot be passed on."""

    async def enable(self, scope: str) -> None:
        """Return when the enabling is durable; Unavailable where it cannot be passed on."""

    async def identify(self, vm: str, resource: str, identity: str) -> tuple[int, bytes]:
        """The status and body of a VM's identity; Unavailable where it cannot be asked for."""


class Manner(NamedTuple):
    """How VMs are treated."""

    rate_limit: Rate | None = DEFAULT
    first_answer_delay_seconds: float = 0.0
    # Where they are plugged in, if it is checked that each is who it says.
    network: Network | None = None


class Front:
    """A board and the worker that serves it, in this process."""

    def __init__(
        self, desk: Desk, clock: Clock, manner: Manner, served: Callable[[Served], None]
    ) -> None:
        self.board = Board()
        # At once: what a VM has in hand outlives a kill of this process.
        self.board.on_first_seen = lambda seen: served(Served(seen, []))
        self._served = served
        self.revision = 0
        self._desk = desk
        self._clock = clock
        self._hello = Hello(0, "")
        self._scopes: dict[str, ScopeIs] = {}
        self._vms: dict[str, VmIs] = {}
        # What could not be shown, and is tried again with whatever comes next.
        self._unshown_scopes: dict[str, ScopeIs] = {}
        self._unshown_vms: dict[str, VmIs] = {}
        self._changed = asyncio.Event()
        # Scopes that are being enabled: whoever asks meanwhile waits for the same.
        self._enabling: dict[str, asyncio.Future[None]] = {}
        self._vouching = None if manner.network is None else Vouching(manner.network, clock)
        self.worker = Worker(
            self.board,
            clock,
            desk.approve,
            self._enable,
            self._describe,
            rate_limit=manner.rate_limit,
            first_answer_delay_seconds=manner.first_answer_delay_seconds,
        )
        self.worker.identify = desk.identify

    @property
    def door(self) -> Door:
        """How VMs are told apart where they come in."""
        if self._vouching is None:
            return Door()
        vouching = self._vouching
        return Door(vouch=vouching.vouch, stranger=vouching.stranger, stayed=vouching.stayed)

    def exposition(self) -> str:
        """What Prometheus is told of the VMs."""
        checks = "" if self._vouching is None else self._vouching.exposition()
        return exposition(self.worker) + checks

    # ---- What is shown ----

    def show(self, told: Told) -> None:
        """Show what these lines, which belong together, say.

        A fault of our own in one document is raised when all others are shown.
        """
        scopes, self._unshown_scopes = self._unshown_scopes, {}
        vms, self._unshown_vms = self._unshown_vms, {}
        gone_scopes: dict[str, None] = {}
        gone_vms: dict[str, None] = {}
        for line in told.facts:
            if isinstance(line, SnapshotBegins):
                scopes, vms = {}, {}
                gone_scopes = dict.fromkeys(self._scopes)
                gone_vms = dict.fromkeys(self._vms)
            elif isinstance(line, ScopeIs):
                scopes[line.name] = line
                gone_scopes.pop(line.name, None)
            elif isinstance(line, VmIs):
                vms[line.name] = line
                gone_vms.pop(line.name, None)
            elif isinstance(line, NoScope):
                gone_scopes[line.name] = None
                scopes.pop(line.name, None)
            elif isinstance(line, NoVm):
                gone_vms[line.name] = None
                vms.pop(line.name, None)
            elif isinstance(line, Hello):
                self._hello = line
        fault = self._put_scopes(scopes)
        self._put_vms(vms)
        self._remove(gone_scopes, gone_vms)
        if self._vouching is not None and (vms or gone_vms):
            self._vouching.expect({one for vm in self._vms.values() for one in vm.addresses})
        self._changed.set()
        self._changed = asyncio.Event()
        if fault is not None:
            raise fault
        # Last: what could not be shown is not confirmed.
        self.revision = told.at.revision

    def _put_scopes(self, scopes: dict[str, ScopeIs]) -> Exception | None:
        """Show these documents; the first fault, after all others."""
        fault: Exception | None = None
        for name, scope in scopes.items():
            if self._scopes.get(name) != scope:
                try:
                    self.board.publish(scope_of(scope), document_of(scope))
                except Exception as error:  # noqa: BLE001 - raised when the others are shown
                    fault = fault or error
                    self._unshown_scopes[name] = scope
                    continue
                self._scopes[name] = scope
        return fault

    def _put_vms(self, vms: dict[str, VmIs]) -> None:
        for name, vm in vms.items():
            if vm.scope not in self._scopes:
                log.error("%s cannot be shown without its scope %s", name, vm.scope)
                self._unshown_vms[name] = vm
                continue
            self._vms[name] = vm
            self.board.put_caller(name, vm.scope, vm.addresses)

    def _remove(self, scopes: dict[str, None], vms: dict[str, None]) -> None:
        for name in vms:
            self._vms.pop(name, None)
            self.board.remove_caller(name)
        for name in scopes:
            self._scopes.pop(name, None)
            self.board.remove_page(name)

    def _describe(self, name: str) -> About | None:
        vm = self._vms.get(name)
        if vm is None:
            return None
        node = Node(self._hello.node, vm.fault_domain)
        scope = scope_of(self._scopes[vm.scope])
        return About(
            vm_of(vm, node.name), node, scope, self._hello.subscription, self._hello.location
        )

    # ---- What is passed on ----

    async def _enable(self, scope: str) -> None:
        """Enable it once, however many of its VMs ask at the same time."""
        enabling = self._enabling.get(scope)
        if enabling is None:
            enabling = self._enabling[scope] = asyncio.ensure_future(self._enabled(scope))
            enabling.add_done_callback(lambda _: self._enabling.pop(scope, None))
        await asyncio.shield(enabling)

    async def _enabled(self, scope: str) -> None:
        """Durable first, and then seen in the feed: the VM is shown what others of it see."""
        await self._desk.enable(scope)
        try:
            async with asyncio.timeout(ENABLED_SECONDS_MAX):
                while scope in self.board.pages and not self.board.pages[scope].enabled:
                    await self._changed.wait()
        except TimeoutError:
            log.info("%s is enabled, and the feed has not said so yet", scope)

    def hand_on(self, heard_every_seconds: float = HEARD_EVERY_SECONDS) -> None:
        """Hand on which scopes asked since the last time, by the wall clock."""
        now, monotonic = self._clock.wall(), self._clock.monotonic()
        heard = [
            (scope, now - timedelta(seconds=monotonic - at))
            for scope, at in self.board.take_heard(heard_every_seconds)
        ]
        if heard:
            self._served(Served([], heard))

    async def gathering(self) -> None:
        """Hand on who was heard, and have it looked again who is who, for ever."""
        while True:
            await self._clock.sleep(HEAR_SECONDS)
            self.hand_on()
            if self._vouching is not None:
                self._vouching.renew()
                # Every connection asks again, with its next poll.
                self.board.identities += 1
