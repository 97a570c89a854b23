"""A fleet laid over the fleet: where commands that are committed together are decided in turn.

Each of them must see what those before it changed, and none of it may be in the fleet before it is
durable. So they are decided on a trial, and when their commit fails there is nothing to undo.
"""

from collections.abc import MutableMapping
from typing import Any

from fairnotice.engine.draft import Overlay
from fairnotice.engine.fleet import Fleet
from fairnotice.engine.tables import INDEXES, TABLES

# Indexes whose values are mappings that the fleet changes in place.
_NESTED = frozenset(("pending_nodes", "parked_nodes", "parked_scopes"))
_OVERLAID = frozenset((*TABLES, *INDEXES, "open_nodes"))


class _Nested(Overlay[str, MutableMapping[Any, Any]]):
    """A mapping of mappings laid over another one: the inner ones are not written to either."""

    __slots__ = ()

    def __getitem__(self, key: str) -> MutableMapping[Any, Any]:
        inner = super().__getitem__(key)
        if key not in self._own:
            inner = self._own[key] = Overlay(inner)
        return inner


class Trial(Fleet):
    """The fleet as it will be when what was applied here is durable."""

    def __init__(self, fleet: Fleet) -> None:
        # Not the fleet's own: it would make a table for each name, and here they are laid over.
        self._base = fleet
        self.timing = fleet.timing
        self.revision = fleet.revision
        self.recorded_at = fleet.recorded_at
        self.life = fleet.life

    def __getattr__(self, name: str) -> Overlay[Any, Any]:
        """Lay a table over the fleet's when it is first asked for."""
        if name in _NESTED:
            overlay: Overlay[Any, Any] = _Nested(getattr(self._base, name))
        elif name in _OVERLAID:
            overlay = Overlay(getattr(self._base, name))
        else:
            raise AttributeError(name)
        self.__dict__[name] = overlay
        return overlay
