"""What libvirtd tells of by itself, handed to the loop that wants it; repeats are left out.

libvirt has one event loop for a whole process. It runs in a thread of its own: it keeps connections
alive, and a service whose own loop is busy for a moment does not lose its nodes.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import libvirt

from fairnotice.clock import Clock

log = logging.getLogger(__name__)

# One reboot of a guest raises up to three events, as its firmware resets once more.
SAME_WITHIN_SECONDS = 5.0
TRY_AGAIN_SECONDS = 1.0
_LIFE = {
    libvirt.VIR_DOMAIN_EVENT_DEFINED: "defined",
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED: "undefined",
    libvirt.VIR_DOMAIN_EVENT_STARTED: "started",
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED: "suspended",
    libvirt.VIR_DOMAIN_EVENT_RESUMED: "resumed",
    libvirt.VIR_DOMAIN_EVENT_STOPPED: "stopped",
    libvirt.VIR_DOMAIN_EVENT_SHUTDOWN: "shut down",
    libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED: "suspended by its guest",
    libvirt.VIR_DOMAIN_EVENT_CRASHED: "crashed",
}
REBOOTED = "rebooted"
DEFINED = _LIFE[libvirt.VIR_DOMAIN_EVENT_DEFINED]


class Happening(NamedTuple):
    """Something befell a domain."""

    node: str
    domain: str
    what: str


@cache
def begin_events() -> None:
    """Have libvirt's events delivered, in this process, from now on."""
    libvirt.virEventRegisterDefaultImpl()
    # What fails is raised where it was asked for; libvirt would print it as well.
    libvirt.registerErrorHandler(lambda *_: None, None)

    def turn() -> None:
        while True:
            deliver()

    threading.Thread(target=turn, name="libvirt-events", daemon=True).start()


def deliver() -> None:
    """Whatever there is to be delivered; what fails is said, and tried again a while later."""
    try:
        libvirt.virEventRunDefaultImpl()
    except libvirt.libvirtError as error:
        log.error("libvirt's events cannot be delivered: %s", error)  # noqa: TRY400 - nobody's bug
        threading.Event().wait(TRY_AGAIN_SECONDS)


class Happenings:
    """Takes events of all nodes in, and tells whoever waits; of repeats only the first."""

    def __init__(self, clock: Clock, tell: Callable[[Happening], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._last: dict[Happening, float] = {}

    def follow(
        self,
        node: str,
        connection: Any,  # noqa: ANN401 - libvirt has no types
        loop: asyncio.AbstractEventLoop,
    ) -> list[int]:
        """Be told of what happens on this node until these callbacks are taken back."""

        def tell(domain: Any, what: str) -> None:  # noqa: ANN401
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.heard, Happening(node, domain.name(), what))

        def life(_: object, domain: Any, event: int, *__: object) -> None:  # noqa: ANN401
            tell(domain, _LIFE.get(event, "changed"))

        def reboot(_: object, domain: Any, *__: object) -> None:  # noqa: ANN401
            tell(domain, REBOOTED)

        return [
            connection.domainEventRegisterAny(None, kind, callback, None)
            for kind, callback in (
                (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, life),
                (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, reboot),
            )
        ]

    def heard(self, happening: Happening) -> None:
        """One event; a repeat within seconds is the same one."""
        now = self._clock.monotonic()
        last = self._last.get(happening)
        repeated = last is not None and now - last < SAME_WITHIN_SECONDS
        self._last[happening] = now
        if happening.what == REBOOTED and repeated:
            return
        self._last = {one: at for one, at in self._last.items() if now - at < SAME_WITHIN_SECONDS}
        self._tell(happening)
