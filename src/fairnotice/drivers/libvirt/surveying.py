"""What there is on all nodes: looked at together, so that none of them holds up the others."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Found, Survey
from fairnotice.drivers.libvirt.definitions import Definitions
from fairnotice.drivers.libvirt.footing import latest
from fairnotice.drivers.libvirt.host import Host, Sight, claimed_twice
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.looking import WHOLE_LOOK_SECONDS, in_time
from fairnotice.drivers.libvirt.settings import LibvirtSettings
from fairnotice.errors import LeadLost, Unavailable

log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """A survey, and everything that was seen for it."""

    survey: Survey
    # Of every VM that no two domains claim to be all its domains, by node.
    places: Mapping[str, Mapping[str, Sight]]


class Claims(NamedTuple):
    """All domains that were seen, by the VMs that they say they are."""

    places: dict[str, dict[str, Sight]]
    # What is to be said of those VMs that domains of several UUIDs claim to be.
    unsure: dict[str, str]


class Absences:
    """The nodes that do not answer, as one epoch has seen it; the log has it once, and its end."""

    def __init__(self, clock: Clock, unreachable_after_seconds: float) -> None:
        self._clock = clock
        self._unreachable_after_seconds = unreachable_after_seconds
        # Since when, by both clocks.
        self._since: dict[str, tuple[float, datetime]] = {}
        # Those of them that were said to be unreachable.
        self._said: set[str] = set()

    def forget(self) -> None:
        """Nobody knows how long a node has been away."""
        self._since.clear()
        self._said.clear()

    def miss(self, node: str, why: Exception) -> bool:
        """It has not answered; whether that is so for long enough to be reported."""
        now = self._clock.monotonic()
        if node not in self._since:
            log.info("%s is passed over: %s", node, why)
        since, at = self._since.setdefault(node, (now, self._clock.wall()))
        if now - since < self._unreachable_after_seconds:
            return False
        if node not in self._said:
            self._said.add(node)
            log.warning("%s is unreachable, since %s UTC: %s", node, f"{at:%Y-%m-%d %H:%M:%S}", why)
        return True

    def end(self, node: str) -> None:
        """It has answered."""
        if node in self._since:
            level = logging.WARNING if node in self._said else logging.INFO
            since, _ = self._since.pop(node)
            log.log(level, "%s answers again, after %.0f s", node, self._clock.monotonic() - since)
        self._said.discard(node)


class Surveyor:
    """Looks at all nodes, again and again."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        settings: LibvirtSettings,
        clock: Clock,
        definitions: Definitions,
    ) -> None:
        self._hosts = hosts
        self._definitions = definitions
        self._absences = Absences(clock, settings.unreachable_after_seconds)
        # Of which VMs nothing could be told at the last look, and why.
        self._unsure: dict[str, str] = {}
        self._epoch = 0

    async def survey(self, epoch: int, failed: frozenset[str]) -> Seen:
        """What there is on the nodes that can be asked, and which cannot for long enough.

        One that has failed counts as any other if it answers, and is not missed if it does not.
        """
        if epoch != self._epoch:
            # Others may have looked meanwhile, and found it back.
            self._epoch = epoch
            self._absences.forget()
            self._unsure.clear()
        self._definitions.lead(epoch)
        seen: dict[str, list[Sight]] = {}
        away, readable = [], True
        looks = await asyncio.gather(
            *(_look_at(host, epoch) for host in self._hosts.values()), return_exceptions=True
        )
        for (name, host), look in zip(self._hosts.items(), looks, strict=True):
            if isinstance(look, (Unavailable, Trouble)) and not isinstance(look, LeadLost):
                if self._absences.miss(name, look):
                    away.append(name)
                continue
            if isinstance(look, BaseException):
                raise look
            self._absences.end(name)
            seen[name] = look
            host.say_what_is_unreadable()
            readable = readable and not host.unreadable
        reached = list(seen)
        lost = self._hosts.keys() - seen.keys()
        # Whose label cannot be read may be any VM: none is gone for certain.
        whole = readable and lost <= failed
        places, unsure = self._claims(seen, whole=whole and not lost)
        there = {vm: _where(vm, found) for vm, found in places.items()}
        if lost or not whole:
            # What is left of a VM is not the VM: its node cannot be asked now, or has failed.
            there = await self._definitions.without_remains(there, reached)
        await self._definitions.keep(there, reached)
        if whole:
            await self._definitions.forget_all_but(set(places) | unsure, lost)
        survey = Survey(_found(there), frozenset(reached), frozenset(away), whole, unsure)
        return Seen(survey, places)

    def _claims(
        self, seen: Mapping[str, list[Sight]], *, whole: bool
    ) -> tuple[dict[str, dict[str, Sight]], frozenset[str]]:
        """Every VM's domains, and the VMs of which nothing can be told; what is new of it is said.

        Whoever was one of two is not the VM because the other one cannot be seen now.
        """
        places, unsure = _claims_in(seen)
        if not whole:
            unsure = self._unsure | unsure
        for vm, sentence in unsure.items():
            if self._unsure.get(vm) != sentence:
                log.error("%s. Until then what is known of %s stays as it is.", sentence, vm)
        for vm in (self._unsure.keys() - unsure.keys()) & places.keys():
            log.info("only one domain says that it is %s now", vm)
        self._unsure = unsure
        sure = {vm: found for vm, found in places.items() if vm not in unsure}
        return sure, frozenset(unsure)

    async def everything(self) -> dict[str, tuple[str, Sight]]:
        """Every VM, and where it is; Unavailable where a node cannot be asked.

        Trouble where that is not all of them: two domains claim to be one VM, or a label cannot be
        read, whose domain may be one.
        """
        found = await self._readable()
        mends = [sentence for host in self._hosts.values() for sentence in host.mends()]
        if mends:
            raise Trouble("\n".join(mends))
        return found

    async def discover(self) -> tuple[Found, ...]:
        """The same of all domains whose labels can be read, as a driver says it."""
        try:
            found = await self._readable()
        except Trouble as error:
            raise Unavailable(str(error)) from error
        for host in self._hosts.values():
            host.say_what_is_unreadable()
        return _found(found)

    async def _readable(self) -> dict[str, tuple[str, Sight]]:
        seen = {name: await host.look_at_all() for name, host in self._hosts.items()}
        places, unsure = _claims_in(seen)
        if unsure:
            raise Trouble("; ".join(unsure.values()))
        return {vm: _where(vm, found) for vm, found in places.items()}


async def _look_at(host: Host, epoch: int) -> list[Sight]:
    await in_time(host, host.meet(epoch))
    return await in_time(host, host.look_at_all(), seconds=WHOLE_LOOK_SECONDS)


def _claims_in(seen: Mapping[str, list[Sight]]) -> Claims:
    """By UUID: a domain and what is left of it elsewhere have the same, two of one node never."""
    claims: dict[str, list[tuple[str, Sight]]] = {}
    for node, sights in seen.items():
        for sight in sights:
            claims.setdefault(sight.vm, []).append((node, sight))
    unsure = {
        vm: str(claimed_twice(vm, (f"{sight.domain} on {node}" for node, sight in claimed)))
        for vm, claimed in claims.items()
        if len({sight.uuid for _, sight in claimed}) > 1
    }
    return Claims({vm: dict(claimed) for vm, claimed in claims.items() if vm not in unsure}, unsure)


def _where(vm: str, places: Mapping[str, Sight]) -> tuple[str, Sight]:
    """On two nodes during a move, a VM is where it runs; or where it was put last."""
    running = [node for node, sight in places.items() if sight.running]
    if len(running) > 1:
        log.error("%s runs on %s: stop one of them by hand", vm, " and on ".join(running))
    node = latest(places)
    return node, places[node]


def _found(places: Mapping[str, tuple[str, Sight]]) -> tuple[Found, ...]:
    return tuple(
        Found(vm, None if sight.given_up and not sight.active else node, sight.power)
        for vm, (node, sight) in sorted(places.items())
    )
