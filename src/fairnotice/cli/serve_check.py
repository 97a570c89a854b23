"""What `serve --check` says of a configuration that fits: what may be missing when it is served."""

import errno
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from fairnotice.cli.serve_config import DriverTable, ServeConfig
from fairnotice.control.running import Place
from fairnotice.stores.opening import sqlite_file
from fairnotice.words import ImpactKind

# What is known of a driver only when it is used.
_OF_DRIVER = {
    "command": ", and what the commands of the driver do",
    "libvirt": ", whether the hypervisors answer (virsh -c URI list), and whether they reach each "
    "other for a live migration (the same on each of them, with `peer_uri` of the others)",
    "simulated": "",
}
# Where there is one node, there is none to go to.
MOVABLE_BETWEEN = 2


def not_looked_at(driver: str) -> str:
    """What may be wrong all the same, where this is the kind of the driver."""
    store = "Not looked at: whether the store opens, whether its ports are free and allowed"
    return f"{store}{_OF_DRIVER[driver]}."


def doubts(config: ServeConfig) -> Iterator[str]:
    """What would be found out only when it is served, or when it is too late; a sentence each."""
    yield from _no_directory(config)
    yield from _no_address("control", config.control_place)
    if config.metadata_place is not None:
        yield from _no_address("metadata", config.metadata_place)
    if config.arm is not None and config.arm_place is not None and config.tls is not None:
        yield from _no_address("arm", config.arm_place)
        yield from _foreign_name(config.arm.url, config.tls.pair.certificate)
        yield from _anybody_reads(Path(config.arm.keys))
    yield from kinds_without_command(config.driver)
    yield from _peers_out_of_reach(config.driver)
    yield from _forgets(config)


def kinds_without_command(driver: DriverTable) -> Iterator[str]:
    """The impacts that would be announced to VMs, and then fail."""
    kinds = [kind for kind in ImpactKind if kind not in driver.commands]
    if driver.kind == "command" and kinds:
        yield (
            f"driver.commands has no command for {', '.join(kinds)}: what asks for that is "
            "announced to VMs, and fails."
        )


def _peers_out_of_reach(driver: DriverTable) -> Iterator[str]:
    """Nodes to which no other can migrate a VM: that is found out once the VM has prepared."""
    if driver.kind != "libvirt" or len(driver.nodes) < MOVABLE_BETWEEN:
        return
    for name, address in driver.libvirt.nodes.items():
        if lacking := address.lacking_for_peers:
            yield (
                f"driver.nodes.{name}: {lacking}. If the other nodes cannot reach it so, each live "
                "migration to it is announced to VMs, and fails."
            )


def _no_directory(config: ServeConfig) -> Iterator[str]:
    file = sqlite_file(config.store_url())
    if file is not None and not file.parent.is_dir():
        yield f"store: there is no directory {file.parent} yet."


def _no_address(table: str, place: Place) -> Iterator[str]:
    """Whether an interface has this address; which port is not asked, since it may be in use."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((place.host, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                yield f"{table}.listen: no interface of this machine has {place.host} yet."


def _foreign_name(url: str, path: Path) -> Iterator[str]:
    """Whether the certificate is for another name than the one that Azure's tools are given."""
    host = urlsplit(url).hostname or ""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = set()
    else:
        addresses = map(str, named.get_values_for_type(x509.IPAddress))
        names = {*map(str.lower, named.get_values_for_type(x509.DNSName)), *addresses}
    if not names & {host, f"*.{host.partition('.')[2]}"}:
        yield f"arm.url: {path} is no certificate for {host}, so Azure's tools will refuse it."


def _anybody_reads(path: Path) -> Iterator[str]:
    if path.stat().st_mode & stat.S_IROTH:
        yield f"arm.keys: everybody on this machine can read {path}, and sign in as anybody."


def _forgets(config: ServeConfig) -> Iterator[str]:
    """Of several control planes, one whose driver forgets what another has begun."""
    if config.cluster is None:
        return
    driver = config.driver
    if driver.kind == "simulated":
        yield (
            "driver.kind is simulated, and there is a `[cluster]`: each control plane has machines "
            "of its own, so after a takeover nobody knows what was done to them."
        )
    elif driver.kind == "command" and not (driver.outcome or driver.state_directory):
        yield (
            "driver has neither `outcome` nor a `state_directory`, and there is a `[cluster]`: "
            "after a takeover nobody knows what became of an impact that another has begun."
        )
