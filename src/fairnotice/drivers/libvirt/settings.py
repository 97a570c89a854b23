"""What an operator configures: which nodes there are, and how long a guest is asked politely."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from fairnotice.errors import UsageError

# What runs VMs, and by what it is reached. `test` is libvirt's own, of no machine.
_HYPERVISORS = frozenset({"qemu", "test"})
_TRANSPORTS = frozenset({"", "tls", "ssh", "libssh", "libssh2", "tcp", "unix", "ext"})
# What a URI names of the machine that opens it: its files, and a program.
_OF_THIS_MACHINE = ("pkipath", "keyfile", "known_hosts", "command")


class NodeAddress(NamedTuple):
    """Where the libvirtd of a node is."""

    uri: str
    # By which URI other nodes reach it, for a live migration; empty: by the same.
    peer_uri: str = ""
    # Where its QEMU takes memory that migrates, as `tcp://NAME`; empty: as libvirt finds out.
    migrate_uri: str = ""

    @property
    def lacking_for_peers(self) -> str:
        """Why other nodes may not reach it, in a few words; empty where they may."""
        parts = urlsplit(self.uri)
        if self.peer_uri or parts.scheme == "test":
            return ""
        ours = [f"{key}=" for key in _OF_THIS_MACHINE if key in parse_qs(parts.query)]
        if ours or not parts.hostname:
            why = f"has {' and '.join(ours)} of the control plane" if ours else "names no machine"
            return f"it has no peer_uri, and its uri {why}"
        return ""


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """The nodes, and the limits; UsageError names the field that cannot be."""

    nodes: Mapping[str, NodeAddress] = field(default_factory=dict)
    # So long a guest is asked to reboot before it is reset.
    reboot_limit_seconds: float = 60.0
    # So long a guest is asked to shut down before it is destroyed.
    shutdown_limit_seconds: float = 60.0
    # How often the nodes are looked at even if they have said nothing.
    look_every_seconds: float = 10.0
    # So long a node has to be away before that is reported.
    unreachable_after_seconds: float = 15.0
    # What has ended is forgotten after so many days.
    kept_days: float = 7.0

    def __post_init__(self) -> None:
        if not self.nodes:
            raise UsageError("nodes is empty: give the URI of a libvirtd by the name of its node.")
        for name, address in self.nodes.items():
            for uri in filter(None, (address.uri or "nothing", address.peer_uri)):
                if not name or not _is_libvirts(uri):
                    raise UsageError(f"nodes.{name} is {uri!r}: give a URI, qemu+tls://…/system.")
        uris = [address.uri for address in self.nodes.values()]
        if len(set(uris)) < len(uris):
            raise UsageError("nodes names one libvirtd twice: two nodes are two.")
        for name in (
            "reboot_limit_seconds",
            "shutdown_limit_seconds",
            "look_every_seconds",
            "unreachable_after_seconds",
            "kept_days",
        ):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds > 0):
                raise UsageError(f"{name} is {seconds}: give a number greater than 0.")


def _is_libvirts(uri: str) -> bool:
    """Whether it is a URI that libvirt would know what to do with."""
    scheme, there, _ = uri.partition("://")
    hypervisor, _, transport = scheme.partition("+")
    return bool(there) and hypervisor in _HYPERVISORS and transport in _TRANSPORTS
