"""`serve.toml`, read and checked whole: whatever is wrong is said with the file's name and the key.

The shapes below are the file: a table each, a key each. docs/reference/serve.md is made of them.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from fairnotice.arm.signing import KeyFile
from fairnotice.cli import settings
from fairnotice.control import certificates
from fairnotice.control.holders import is_loopback, is_routable
from fairnotice.control.running import Place
from fairnotice.control.shapes import Body
from fairnotice.control.toml_tables import converted, parsed
from fairnotice.drivers.command.settings import CommandSettings
from fairnotice.drivers.libvirt.settings import LibvirtSettings, NodeAddress
from fairnotice.errors import UsageError
from fairnotice.metadata.rate import BURST, Rate, rate_of
from fairnotice.metadata.worker import FIRST_ANSWER_DELAY_SECONDS_MAX
from fairnotice.stores.opening import check_installed
from fairnotice.words import ImpactKind

DAYS_MAX = 36_500
Days = Annotated[int, Meta(ge=1, le=DAYS_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
_COMMAND = CommandSettings()
_COMMAND_KEYS = frozenset(one.name for one in fields(CommandSettings))
# What the other drivers do not take.
_LIBVIRT_KEYS = frozenset(
    {
        "nodes",
        "reboot_limit_seconds",
        "shutdown_limit_seconds",
        "look_every_seconds",
        "unreachable_after_seconds",
    }
)


class StoreTable(Body):
    """`[store]`: where everything is kept. One of the two keys."""

    url: Annotated[str, Meta(description="`sqlite:PATH` or `postgresql://…`")] = ""
    url_file: Annotated[
        str, Meta(description="a file whose first line is the URL, for one with a password")
    ] = ""


class RetentionTable(Body):
    """`[retention]`: for how long what is over is remembered."""

    journal_days: Annotated[Days, Meta(description="every change, for whoever follows")] = 7
    history_days: Annotated[Days, Meta(description="what is over, and its story")] = 90
    audit_days: Annotated[Days, Meta(description="who asked for what")] = 365


class ControlTable(Body):
    """`[control]`: the API."""

    listen: Annotated[str, Meta(description="HOST:PORT")] = "127.0.0.1:8600"
    names: Annotated[
        list[str],
        Meta(description="names by which it may be asked where nobody is authenticated"),
    ] = field(default_factory=list)
    behind_proxy: Annotated[
        bool,
        Meta(
            description="says that nobody reaches `listen` but a proxy, which does TLS; and, with "
            "`required = false` in `[auth]`, asks who somebody is"
        ),
    ] = False


class TlsTable(Body):
    """`[tls]`: the certificate of the API. Files that change are taken without a restart."""

    certificate: Annotated[str, Meta(description="PEM file, the whole chain")]
    key: Annotated[str, Meta(description="PEM file, without a passphrase")]

    @property
    def pair(self) -> certificates.Pair:
        """The two files."""
        return certificates.Pair(Path(self.certificate), Path(self.key))


class AuthTable(Body):
    """`[auth]`: who may ask."""

    required: Annotated[
        bool, Meta(description="whether every request needs a token (`fairnotice token create`)")
    ] = True


class ClusterTable(Body):
    """`[cluster]`: several control planes on one PostgreSQL, one of which leads."""

    address: Annotated[str, Meta(description="URL at which the others reach this one")]
    trust: Annotated[
        str, Meta(description="PEM file of who vouches for the others; empty: as the system does")
    ] = ""
    lease_seconds: Annotated[
        float,
        Meta(description="so long after its last word a leader is replaced", ge=0.5, le=60),
    ] = 2.5


class MetadataTable(Body):
    """`[metadata]`: answers VMs in this process. Left out, only endpoints on nodes do."""

    listen: Annotated[str, Meta(description="HOST:PORT")] = "169.254.169.254:80"
    routable: Annotated[
        bool, Meta(description="says that `listen` is meant to be reached from other networks")
    ] = False
    rate_limit: Annotated[
        Annotated[float, Meta(gt=0, le=1e6)] | Literal["off"],
        Meta(description="requests a second and VM, or `off`"),
    ] = 5.0
    first_answer_delay_seconds: Annotated[
        float,
        Meta(
            description="how long the first answer of a scope waits, as on Azure",
            ge=0,
            le=FIRST_ANSWER_DELAY_SECONDS_MAX,
        ),
    ] = 0.0

    @property
    def rate(self) -> Rate | None:
        """The limit as the endpoint has it."""
        return None if self.rate_limit == "off" else rate_of(float(self.rate_limit), BURST)


class LibvirtNode(Body):
    """A node of the libvirt driver that needs more than a URI."""

    uri: str
    peer_uri: str = ""
    migrate_uri: str = ""


class DriverTable(Body):
    """`[driver]`: what touches machines. [What its commands are given](driver-commands.md)."""

    kind: Annotated[
        Literal["command", "libvirt", "simulated"],
        Meta(
            description="the operator's own command lines, [libvirt](libvirt.md), or machines that "
            "exist only here"
        ),
    ] = "simulated"
    nodes: Annotated[
        dict[str, str | LibvirtNode],
        Meta(description="of `libvirt`: a URI by node: `node-0 = 'qemu+tls://node-0/system'`"),
    ] = field(default_factory=dict)
    reboot_limit_seconds: Annotated[
        Seconds, Meta(description="of `libvirt`: so long a guest is asked to reboot, then reset")
    ] = 60.0
    shutdown_limit_seconds: Annotated[
        Seconds, Meta(description="of `libvirt`: so long a guest is asked to end, then destroyed")
    ] = 60.0
    look_every_seconds: Annotated[
        Seconds,
        Meta(description="of `libvirt`: machines are looked at so often, and at every event"),
    ] = 10.0
    unreachable_after_seconds: Annotated[
        Seconds, Meta(description="of `libvirt`: a node so long away is reported unreachable")
    ] = 15.0
    commands: Annotated[
        dict[ImpactKind, list[str]],
        Meta(description="a list of words by impact: `reboot = ['/opt/cloud/reboot']`"),
    ] = field(default_factory=dict)
    outcome: Annotated[
        list[str], Meta(description="command that says what became of an impact")
    ] = field(default_factory=list)
    discover: Annotated[list[str], Meta(description="command that lists VMs, nodes and powers")] = (
        field(default_factory=list)
    )
    state_directory: Annotated[
        str,
        Meta(
            description="absolute path where it is written down what has begun; of several control "
            "planes, on a disk that they share, unless `outcome` knows"
        ),
    ] = ""
    limit_seconds: Annotated[Seconds, Meta(description="no impact's command runs for longer")] = (
        _COMMAND.limit_seconds
    )
    kill_after_seconds: Annotated[
        Seconds, Meta(description="so long after being told to end it is killed")
    ] = _COMMAND.kill_after_seconds
    question_limit_seconds: Annotated[
        Seconds, Meta(description="the same for `outcome` and `discover`")
    ] = _COMMAND.question_limit_seconds
    output_bytes_max: Annotated[
        int, Meta(description="of what a command prints, so much is kept", ge=0)
    ] = _COMMAND.output_bytes_max
    kept_days: Annotated[
        Seconds, Meta(description="what has ended is forgotten after so many days")
    ] = _COMMAND.kept_days

    @property
    def command(self) -> CommandSettings:
        """The same as the driver takes it; UsageError where it cannot be."""
        own = {key: getattr(self, key) for key in self.__struct_fields__ if key in _COMMAND_KEYS}
        directory = Path(self.state_directory) if self.state_directory else None
        return CommandSettings(**{**own, "state_directory": directory})

    @property
    def libvirt(self) -> LibvirtSettings:
        """The same for the libvirt driver; UsageError where it cannot be."""
        own = {key: getattr(self, key) for key in _LIBVIRT_KEYS}
        nodes = {
            name: NodeAddress(one)
            if isinstance(one, str)
            else NodeAddress(one.uri, one.peer_uri, one.migrate_uri)
            for name, one in self.nodes.items()
        }
        return LibvirtSettings(**{**own, "nodes": nodes, "kept_days": self.kept_days})

    def given(self) -> frozenset[str]:
        """The keys that are not as they would be without the file."""
        nothing = DriverTable()
        return frozenset(
            key
            for key in self.__struct_fields__
            if key != "kind" and getattr(self, key) != getattr(nothing, key)
        )


class ArmTable(Body):
    """`[arm]`: Azure's own tools, by the certificate of `[tls]`. Left out, they are not served."""

    keys: Annotated[str, Meta(description="PEM file of the keys that sign access tokens")]
    url: Annotated[str, Meta(description="https://NAME:PORT, as the tools ask it")]
    listen: Annotated[str, Meta(description="HOST:PORT")] = "127.0.0.1:8643"


class LogTable(Body):
    """`[log]`: standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="the least that is written")
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="lines for people, or an object a line")
    ] = "text"


class ServeConfig(Body):
    """The whole file. `[store]` must be there; every other table may be left out."""

    store: StoreTable
    timing: Annotated[
        Literal["azure", "dev"],
        Meta(description="how long notice is: minutes as on Azure, or seconds to try things out"),
    ] = "azure"
    retention: RetentionTable = field(default_factory=RetentionTable)
    control: ControlTable = field(default_factory=ControlTable)
    tls: TlsTable | None = None
    auth: AuthTable = field(default_factory=AuthTable)
    cluster: ClusterTable | None = None
    metadata: MetadataTable | None = None
    arm: ArmTable | None = None
    driver: DriverTable = field(default_factory=DriverTable)
    log: LogTable = field(default_factory=LogTable)

    @property
    def control_place(self) -> Place:
        """Where the API is."""
        return _place("control", self.control.listen)

    @property
    def names(self) -> frozenset[str]:
        """By which names others ask: those given, and the one for other control planes."""
        given = frozenset(self.control.names)
        ours = None if self.cluster is None else urlsplit(self.cluster.address).hostname
        return given if ours is None else given | {ours}

    @property
    def metadata_place(self) -> Place | None:
        """Where VMs are answered, if here."""
        return None if self.metadata is None else _place("metadata", self.metadata.listen)

    @property
    def arm_place(self) -> Place | None:
        """Where Azure's tools ask, if anywhere."""
        return None if self.arm is None else _place("arm", self.arm.listen)

    def store_url(self) -> str:
        """Where everything is kept; UsageError where that cannot be said."""
        if bool(self.store.url) == bool(self.store.url_file):
            raise UsageError("store: give one of `url` and `url_file`")
        url = self.store.url or _url_in(self.store.url_file)
        if not settings.is_store(url):
            whence = "store.url" if self.store.url else self.store.url_file
            raise UsageError(f"{whence} is no {settings.BY_NAME['store'].takes}")
        return url


def _url_in(file: str) -> str:
    try:
        return settings.first_line(file)
    except UsageError as error:
        raise UsageError(f"store.url_file: {error}") from error


# ---- Reading ----


def read(path: Path) -> ServeConfig:
    """The configuration of this file; UsageError, a line for each thing that is wrong with it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}.") from error
    config = converted(parsed(text, str(path), "configuration"), ServeConfig, str(path))
    wrong = list(_misfits(config))
    if wrong:
        raise UsageError("\n".join(f"{path}: {sentence}" for sentence in wrong))
    return config


def _misfits(config: ServeConfig) -> Iterator[str]:
    """What fits into its shape, and yet cannot be."""
    checks: tuple[Callable[[ServeConfig], None], ...] = (
        _store_can_be_opened,
        _control_is_not_exposed,
        _metadata_is_not_exposed,
        _cluster_fits,
        _certificate_is_one,
        _arm_is_safe,
        _commands_are_there,
    )
    for check in checks:
        try:
            check(config)
        except UsageError as error:
            yield from str(error).splitlines()


def _store_can_be_opened(config: ServeConfig) -> None:
    url = config.store_url()
    check_installed(url)
    if config.cluster is not None and not url.startswith(("postgresql://", "postgres://")):
        raise UsageError("cluster: several control planes need one PostgreSQL; see `store.url`")


def _control_is_not_exposed(config: ServeConfig) -> None:
    """Whoever reaches it may do what his token allows; without one, everything."""
    place = config.control_place
    if is_loopback(place.host) or config.control.behind_proxy:
        return
    missing = [
        what
        for what, is_there in (
            ("a certificate (`[tls]`)", config.tls is not None),
            ("authentication (`required = true` in `[auth]`)", config.auth.required),
        )
        if not is_there
    ]
    if missing:
        raise UsageError(
            f"control.listen is {place}, which others can reach: that needs "
            f"{' and '.join(missing)}, or `behind_proxy = true` in `[control]` where a proxy "
            "does it"
        )


def _metadata_is_not_exposed(config: ServeConfig) -> None:
    place = config.metadata_place
    if place is None or config.metadata is None or config.metadata.routable:
        return
    if is_routable(place.host):
        raise UsageError(
            f"metadata.listen is {place}, which other networks can reach, and VMs are known by "
            "their address alone: choose 169.254.169.254:80, or say `routable = true`"
        )


def _cluster_fits(config: ServeConfig) -> None:
    if config.cluster is None:
        return
    if config.metadata is not None:
        raise UsageError(
            "cluster and metadata exclude each other: with several control planes VMs are answered "
            "by `fairnotice endpoint` on their node"
        )
    if not settings.is_url(config.cluster.address):
        raise UsageError("cluster.address is no URL: give https://NAME:PORT, as others reach it")
    plain = urlsplit(config.cluster.address).scheme == "http"
    if plain and config.tls is not None:
        raise UsageError("cluster.address is http://, and `[tls]` is there: give https://NAME:PORT")
    host = urlsplit(config.cluster.address).hostname or ""
    if plain and config.auth.required and not is_loopback(host):
        raise UsageError(
            "cluster.address is http://: others pass on what they are asked, with its token, and "
            "everybody on the way could read it. Give https://NAME:PORT, of the proxy if there is "
            "one"
        )
    if config.cluster.trust and not Path(config.cluster.trust).is_file():
        raise UsageError(f"cluster.trust: {config.cluster.trust} is not there")


def _certificate_is_one(config: ServeConfig) -> None:
    if config.tls is not None:
        certificates.load(config.tls.pair)


def _arm_is_safe(config: ServeConfig) -> None:
    if config.arm is None:
        return
    if config.arm_place is None or config.tls is None or not config.auth.required:
        raise UsageError(
            "arm: Azure's tools need a certificate (`[tls]`), and are asked who they are "
            "(`required = true` in `[auth]`)"
        )
    if not (settings.is_url(config.arm.url) and config.arm.url.startswith("https://")):
        raise UsageError("arm.url is no URL of https://: give https://NAME:PORT, as the tools ask")
    try:
        KeyFile(Path(config.arm.keys))
    except UsageError as error:
        raise UsageError(f"arm.keys: {error}") from error


def _commands_are_there(config: ServeConfig) -> None:
    driver = config.driver
    if driver.kind == "simulated":
        if driver != DriverTable():
            meant = "libvirt" if driver.given() <= _LIBVIRT_KEYS else "command"
            raise UsageError(
                f"driver: simulated machines take no keys; is `kind = '{meant}'` meant?"
            )
        return
    taken = _COMMAND_KEYS if driver.kind == "command" else _LIBVIRT_KEYS | {"kept_days"}
    odd = sorted(driver.given() - taken)
    if odd:
        raise UsageError(f"driver.{odd[0]} is not for `kind = '{driver.kind}'`")
    if driver.kind == "libvirt":
        _libvirt_fits(driver)
        return
    checked = driver.command
    lines = (*checked.commands.values(), checked.outcome, checked.discover)
    missing = [line[0] for line in lines if line and not _may_be_run(line[0])]
    if missing:
        said = (f"driver: {program} is no program that may be run" for program in missing)
        raise UsageError("\n".join(dict.fromkeys(said)))


def _libvirt_fits(driver: DriverTable) -> None:
    try:
        checked = driver.libvirt
    except UsageError as error:
        raise UsageError(f"driver.{error}") from error
    assert checked.nodes
    if find_spec("libvirt") is None:
        raise UsageError(
            "driver.kind is libvirt, and libvirt-python is not installed: "
            "pip install 'fairnotice[libvirt]'"
        )


def _may_be_run(program: str) -> bool:
    if "/" not in program:
        return shutil.which(program) is not None
    return Path(program).is_file() and os.access(program, os.X_OK)


def _place(table: str, text: str) -> Place:
    found = settings.place(text)
    if found is None:
        raise UsageError(f"{table}.listen is {text!r}: give HOST:PORT")
    return Place(*found)
