"""What `endpoint --check` says beside the file itself: what VMs would not be answered for."""

from collections.abc import Iterator

from fairnotice.endpoint import node_setup, places
from fairnotice.endpoint.config import Config
from fairnotice.errors import UsageError


def not_looked_at(config: Config) -> str:
    """What may be wrong all the same."""
    token = "" if config.token_file is None else f", and takes the token for {config.node}'s"
    return (
        f"Not looked at: whether a control plane answers{token}, whether this machine has the "
        "addresses of `listen`, and whether its ports are free and allowed."
    )


def doubts(config: Config) -> Iterator[str]:
    """For what all VMs would be answered 403, as this machine is now; a sentence each."""
    network = config.manner.network
    if network is None:
        return
    try:
        node_setup.checked(node_setup.Wanted(network.bridge, network.interface))
    except UsageError as error:
        yield f"[network]: {error} Until then no VM is believed."
    try:
        places.read(network.places)
    except UsageError as error:
        yield f"[network]: vms: {error} Until then no VM is believed."
