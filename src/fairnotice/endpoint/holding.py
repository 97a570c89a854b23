"""What a node's endpoint was told, as the lines it came in: to show, to save, to tell a worker."""

from typing import NamedTuple

import msgspec

from fairnotice.control.node_lines import (
    At,
    Hello,
    Known,
    NoScope,
    NoVm,
    ScopeIs,
    SnapshotBegins,
    VmIs,
    decode,
    encode,
)
from fairnotice.errors import Unavailable


class Told(NamedTuple):
    """Lines that belong together, whole and in order: up to a revision. As they came, and read."""

    lines: list[bytes]
    facts: list[Known]
    at: At


class Holding:
    """The state that the lines so far add up to. Lines count from the `at` on that closes them."""

    def __init__(self) -> None:
        self.revision = 0
        self.hello = b""
        self.scopes: dict[str, bytes] = {}
        self.vms: dict[str, bytes] = {}
        self._open: list[bytes] = []
        self._decoded: list[Known] = []

    def begin(self) -> None:
        """A new feed begins: what an old one left open is not worth anything."""
        self._open, self._decoded = [], []

    def take(self, data: bytes) -> Told | None:
        """Take a line without its end; what is to be shown where it closes others.

        Unavailable where it cannot be read, or leads back to what is over.
        """
        if not data:
            return None
        try:
            line = decode(data)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Unavailable(f"a line of the feed cannot be read: {error}") from error
        if line is None:
            return None
        self._open.append(data + b"\n")
        self._decoded.append(line)
        if not isinstance(line, At):
            return None
        if line.revision < self.revision:
            # Revisions only grow, also by a restore: whoever says less has not read so far yet.
            raise Unavailable(
                f"the feed is at revision {line.revision}, and {self.revision} was told already. "
                "If its store was begun anew, stop this endpoint and empty its state directory"
            )
        told = Told(self._open, self._decoded, line)
        for one, raw in zip(self._decoded, self._open, strict=True):
            self._apply(one, raw)
        self.begin()
        return told

    def _apply(self, line: Known, raw: bytes) -> None:
        if isinstance(line, Hello):
            self.hello = raw
        elif isinstance(line, SnapshotBegins):
            self.scopes.clear()
            self.vms.clear()
        elif isinstance(line, ScopeIs):
            self.scopes[line.name] = raw
        elif isinstance(line, VmIs):
            self.vms[line.name] = raw
        elif isinstance(line, NoVm):
            self.vms.pop(line.name, None)
        elif isinstance(line, NoScope):
            self.scopes.pop(line.name, None)
        elif isinstance(line, At):
            self.revision = line.revision

    def whole(self) -> list[bytes]:
        """All of it as a feed would begin; for the disk, and for a worker that knows nothing."""
        begins, ends = encode(SnapshotBegins()), encode(At(self.revision))
        return [self.hello, begins, *self.scopes.values(), *self.vms.values(), ends]

    def all(self) -> Told | None:
        """The same, read; None where nothing was told yet."""
        told: Told | None = None
        again = Holding()
        for line in self.whole() if self.hello else ():
            told = again.take(line.rstrip(b"\n")) or told
        return told
