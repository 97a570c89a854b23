"""The page of one VM, and that of one node: what they are, what comes, what may be done."""

import json
from collections.abc import Iterable
from typing import Any

from fairnotice.control.service import named
from fairnotice.engine.changes import Row
from fairnotice.metadata.faults import FaultKind
from fairnotice.model import Event, Vm
from fairnotice.portal.parts import Key, Page, Part
from fairnotice.portal.site import ANY_EVENT, NEWEST, Site, Viewer
from fairnotice.portal.telling import told, touched
from fairnotice.wire.versions import SCHEDULED_EVENTS

EVENTS_SHOWN = 20
LATE = (FaultKind.SLOW, FaultKind.SLOW_FIRST)


class VmPage(Page):
    """One VM: its document as it reads it, its events, and lines to copy."""

    template = "vm.html"
    section = "fleet"

    def __init__(self, site: Site, viewer: Viewer, name: str, api_version: str = NEWEST) -> None:
        super().__init__(site, viewer)
        named("VM", self.fleet.vms, name)
        self.name = name
        self.api_version = api_version if api_version in SCHEDULED_EVENTS else NEWEST
        self.api_versions = SCHEDULED_EVENTS[::-1]

    @property
    def title(self) -> str:
        """The VM's name."""
        return self.name

    def keys(self) -> Iterable[Key]:
        """Few enough to be drawn all."""
        kinds = ("vm-head", "vm-facts", "vm-events", "vm-document", "vm-lines")
        return map(Key, kinds)

    def passing(self) -> Iterable[Key]:
        """It may have asked, which is no commit."""
        return self.keys()

    def part(self, key: Key) -> Part | None:
        """One of them."""
        vm = self.fleet.vms.get(self.name)
        more: dict[str, Any] = {"vm": vm, "page": self}
        if vm is None:
            return self.drawn(key, f"{key.kind}-box", "part_gone.html", **more)
        scope = self.fleet.scopes[vm.scope]
        more |= {"touched": touched(self.fleet, vm, self.now), "scope": scope}
        more["neighbours"] = self.fleet.vms_in_scope.get(vm.scope, ())
        if key.kind == "vm-events":
            more["events"] = [told(self.fleet, event, self.now) for event in self._events(vm.scope)]
        elif key.kind == "vm-document":
            body = self.site.service.document(self.name, self.api_version)
            more["faults"] = self._faults()
            more["document"] = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
        elif key.kind == "vm-lines":
            more["lines"] = self.site.lines(self.name, self.api_version, self._to_approve(vm))
        elif key.kind == "vm-facts":
            asked = self.site.last_asked(self.name)
            # To the second: it is told anew when it has asked again, not when time passes.
            more["asked_at"] = None if asked is None else asked.replace(microsecond=0)
        return self.drawn(key, f"{key.kind}-box", f"part_{key.kind.replace('-', '_')}.html", **more)

    def _to_approve(self, vm: Vm) -> str:
        """The event that it may approve next; where there is none, what stands for one."""
        of_scope = (
            self.fleet.events[name] for name in self.fleet.events_in_scope.get(vm.scope, ())
        )
        waiting = [event for event in of_scope if told(self.fleet, event, self.now).open]
        waiting.sort(key=lambda event: (vm.name not in event.resources, event.not_before))
        return waiting[0].id if waiting else ANY_EVENT

    def _faults(self) -> list[str]:
        """What makes it read something else than the document: all but what is merely late."""
        on = [one for one in self.site.faults() if one.vm in (None, self.name)]
        return list(dict.fromkeys(one.fault for one in on if one.fault not in LATE))

    def _events(self, scope: str) -> list[Event]:
        """Those that name it: what comes, then what is over, the newest first."""
        mine = [
            event
            for event in self.fleet.events.values()
            if event.scope == scope and self.name in event.resources
        ]
        mine.sort(key=lambda event: (not event.visible, -event.announced_at.timestamp()))
        return mine[:EVENTS_SHOWN]


class NodePage(Page):
    """One node: its VMs, what is planned for it, and what may be done."""

    template = "node.html"
    section = "fleet"

    def __init__(self, site: Site, viewer: Viewer, name: str) -> None:
        super().__init__(site, viewer)
        named("node", self.fleet.nodes, name)
        self.name = name

    @property
    def title(self) -> str:
        """The node's name."""
        return self.name

    def keys(self) -> Iterable[Key]:
        """Few enough to be drawn all."""
        return (Key("node-head"), Key("node-vms"), Key("node-operations"))

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """All of it, whatever happened."""
        return self.keys() if any(rows) else ()

    def part(self, key: Key) -> Part | None:
        """One of them."""
        node = self.fleet.nodes.get(self.name)
        if node is None:
            return self.drawn(key, f"{key.kind}-box", "part_gone.html", page=self)
        vms = [self.fleet.vms[name] for name in self.fleet.vms_on_node.get(node.name, ())]
        names = self.fleet.operations_on_node.get(node.name, ())
        operations = [self.fleet.operations[name] for name in names]
        return self.drawn(
            key,
            f"{key.kind}-box",
            f"part_{key.kind.replace('-', '_')}.html",
            node=node,
            used=self.fleet.used_slots(node.name),
            chips=[(vm, touched(self.fleet, vm, self.now)) for vm in vms],
            operations=[(one, self._told(one.events)) for one in operations],
            page=self,
        )

    def _told(self, events: Iterable[str]) -> list[Any]:
        return [told(self.fleet, self.fleet.events[name], self.now) for name in events]
