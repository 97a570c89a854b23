"""`endpoint.toml`, read and checked: every sentence names the file, the table and the key."""

import os
import ssl
import tomllib
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fairnotice.agent.tables import Table
from fairnotice.control.holders import is_loopback, is_routable
from fairnotice.endpoint import places
from fairnotice.endpoint.front import Manner
from fairnotice.endpoint.vouching import Network
from fairnotice.errors import UsageError
from fairnotice.metadata.rate import BURST, DEFAULT, Rate, rate_of
from fairnotice.metadata.worker import FIRST_ANSWER_DELAY_SECONDS_MAX

FILE = Path("/etc/fairnotice/endpoint.toml")
STATE = Path("/var/lib/fairnotice-endpoint")
METADATA = ("169.254.169.254", 80)
# Where a VM outside of any virtual network finds it: Azure's own address, which no router has.
CLASSIC = "168.63.129.16"
METRICS = ("127.0.0.1", 9169)
WORKERS_MAX = 64
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
TABLES = ("metadata", "network", "metrics", "log")
VLAN_MAX = 4094


class Logging(NamedTuple):
    """What is logged, and how."""

    level: str = "warning"
    format: str = "text"


@dataclass(frozen=True, slots=True)
class Config:
    """All that an endpoint is told."""

    node: str
    control_planes: tuple[str, ...]
    token_file: Path | None = None
    # A CA file; None: those that the system trusts.
    trust: Path | None = None
    state_directory: Path = STATE
    workers: int = 1
    metadata: tuple[str, int] = METADATA
    # A second address, for VMs that are told of it by DHCP (option 245).
    classic: tuple[str, int] | None = None
    manner: Manner = field(default_factory=Manner)
    metrics: tuple[str, int] | None = METRICS
    logging: Logging = field(default_factory=Logging)

    def token(self) -> str | None:
        """The token as it is in its file now; UsageError where it cannot be had."""
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_text("ascii").strip()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"the token in {self.token_file} cannot be read: {error}.") from error
        if not token or not token.isprintable() or " " in token:
            raise UsageError(f"{self.token_file} must hold one token on one line.")
        return token

    def trusted(self) -> ssl.SSLContext | None:
        """Whom the CA file vouches for now; None where there is none. UsageError as above."""
        if self.trust is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.trust))
        except OSError as error:
            raise UsageError(f"trust is {self.trust}, which is no CA file: {error}.") from error


def read(path: Path) -> Config:
    """The configuration in a file."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    tables = {name: values.pop(name, {}) for name in TABLES}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} is a table: write [{name}] above its keys.")
    return _config(
        Table(str(path), values),
        *(Table(f"{path}: [{name}]", tables[name]) for name in TABLES),
    )


def _config(top: Table, metadata: Table, network: Table, metrics: Table, log: Table) -> Config:
    token_file, trust = top.text("token_file", ""), top.text("trust", "")
    config = Config(
        node=top.text("node"),
        control_planes=_control_planes(top, with_token=bool(token_file)),
        token_file=Path(token_file) if token_file else None,
        trust=Path(trust) if trust else None,
        state_directory=Path(top.text("state_directory", _state())),
        workers=top.count("workers", 1, 1, WORKERS_MAX),
        metadata=_metadata(metadata, "listen", "169.254.169.254:80"),
        classic=_classic(metadata),
        manner=Manner(_rate(metadata), _delay(metadata), _network(network)),
        metrics=_metrics(metrics),
        logging=Logging(
            log.choice("level", LEVELS, "warning"), log.choice("format", FORMATS, "text")
        ),
    )
    for table in (top, metadata, network, metrics, log):
        table.done()
    return config


def _state() -> str:
    # systemd makes it, and says where it is.
    return os.environ.get("STATE_DIRECTORY", str(STATE))


def _control_planes(top: Table, *, with_token: bool) -> tuple[str, ...]:
    urls = top.words("control_planes")
    for url in urls:
        if not url.startswith(("https://", "http://")):
            raise top.refuse(
                f"control_planes has {url!r} in it: each is a URL, such as "
                '"https://cp1.example.net:8600".'
            )
        if with_token and url.startswith("http://") and not _is_here(url):
            raise top.refuse(
                f"control_planes has {url!r} in it, and the token of token_file is not sent there: "
                "on the way everybody could read it. Give an address of https://."
            )
    return urls


def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _metadata(table: Table, key: str, such_as: str) -> tuple[str, int]:
    where = _listen(table, such_as, key) if key in table else METADATA
    routable = table.flag("routable", default=False)
    if is_routable(where[0]) and where[0] != CLASSIC and not routable:
        raise table.refuse(
            f"{key} is {where[0]}, which others than this node's VMs may reach, and whoever "
            "reaches it is believed to be the VM of his address. If that is meant: routable = true."
        )
    return where


def _classic(table: Table) -> tuple[str, int] | None:
    if "classic_listen" not in table:
        return None
    return _metadata(table, "classic_listen", f"{CLASSIC}:80")


def _network(table: Table) -> Network | None:
    """Where the VMs are plugged in; None where nobody says, and then nothing is checked."""
    if not any(key in table for key in ("bridge", "interface", "vlan", "vms")):
        return None
    vlan = table.count("vlan", 0, 1, VLAN_MAX) if "vlan" in table else None
    return Network(
        table.text("bridge"),
        table.text("interface", ""),
        vlan,
        Path(table.text("vms", str(places.FILE))),
    )


def _rate(table: Table) -> Rate | None:
    if "rate_limit" not in table:
        return DEFAULT
    if table.peek("rate_limit") == "off":
        return None
    return rate_of(table.seconds("rate_limit", 0.0), BURST)


def _delay(table: Table) -> float:
    delay = table.seconds("first_answer_delay_seconds", 0.0, zero=True)
    if delay > FIRST_ANSWER_DELAY_SECONDS_MAX:
        raise table.refuse(
            f"first_answer_delay_seconds is {delay:g}: give 0 to {FIRST_ANSWER_DELAY_SECONDS_MAX}."
        )
    return delay


def _metrics(table: Table) -> tuple[str, int] | None:
    if "listen" not in table:
        return METRICS
    if table.peek("listen") == "off":
        return None
    return _listen(table, "127.0.0.1:9169")


def _listen(table: Table, such_as: str, key: str = "listen") -> tuple[str, int]:
    """Where to listen: an address of this machine, and no name, which may be of several."""
    host, port = table.address(key, such_as)
    try:
        ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError as error:
        raise table.refuse(
            f'{key} is at {host}, which is no IP address: give one, such as "{such_as}".'
        ) from error
    return host, port
