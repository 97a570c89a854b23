"""The certificate of the control plane: renewed while it serves, and never by a broken one."""

import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.control.metrics import Metric
from fairnotice.errors import UsageError

log = logging.getLogger(__name__)

# Whatever renews certificates does it days before they expire.
LOOK_EVERY_SECONDS = 10.0
LATE_SECONDS = 7 * 86_400

# When a file was written and when its owner or rights last changed, its size and its place.
Stamp = tuple[int, int, int, int]


class Pair(NamedTuple):
    """A certificate, with those that vouch for it behind it in its file, and its key: PEM files."""

    certificate: Path
    key: Path


class Loaded(NamedTuple):
    """What connections are made with, and until when it is good."""

    context: ssl.SSLContext
    expires_at: datetime


class Certificates:
    """The pair in force; `context` is handed to a server once, and serves whatever is in force."""

    def __init__(self, pair: Pair, clock: Clock) -> None:
        self._pair = pair
        self._clock = clock
        self._stamps = _stamps(pair)
        self._loaded = load(pair)
        self.context = load(pair).context
        # Asked at the start of each connection, also of those that name nobody.
        self.context.sni_callback = self._choose
        self._say()

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._loaded.context

    @property
    def expires_seconds(self) -> float:
        """How long the certificate in force is good for; less than 0 where it is so no more."""
        return (self._loaded.expires_at - self._clock.wall()).total_seconds()

    def use(self, pair: Pair) -> None:
        """Serve this pair from now on; the old one where it is broken, which is logged."""
        stamps = _stamps(pair)
        self._pair, self._stamps = pair, stamps
        try:
            self._loaded = load(pair)
        except UsageError as error:
            log.warning("the certificate is kept as it was: %s", error)
        else:
            self._say()

    def _say(self) -> None:
        late = self.expires_seconds < LATE_SECONDS
        level = logging.WARNING if late else logging.INFO
        log.log(level, "the certificate is good until %s", self._loaded.expires_at)

    def look(self) -> None:
        """Take the files again where they are others than they were."""
        if _stamps(self._pair) != self._stamps:
            self.use(self._pair)

    async def watching(self) -> None:
        """Look at the files every now and then."""
        while True:
            await self._clock.sleep(LOOK_EVERY_SECONDS)
            self.look()

    def metrics(self) -> Iterator[Metric]:
        """What Prometheus is told."""
        yield Metric(
            "fairnotice_certificate_expires_seconds",
            "gauge",
            "Seconds until the control plane's certificate expires.",
            [("", (), self.expires_seconds)],
        )


def load(pair: Pair) -> Loaded:
    """A pair from its files; UsageError that says what is wrong with them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a word for it, a key with a passphrase would ask for that in the terminal.
        context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")
        text = pair.certificate.read_text("ascii")
    except ssl.SSLError as error:
        raise UsageError(
            f"{pair.certificate} and {pair.key} are no certificate and its key, in PEM and "
            f"without a passphrase: {error.reason or error}."
        ) from error
    except OSError as error:
        missing = pair.key if _readable(pair.certificate) else pair.certificate
        raise UsageError(f"{missing} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{pair.certificate} is no PEM: {error}.") from error
    return Loaded(context, expires_at(_first(text)))


def _readable(path: Path) -> bool:
    try:
        path.open("rb").close()
    except OSError:
        return False
    return True


def _stamps(pair: Pair) -> list[Stamp | None]:
    return [stamp_of(path) for path in pair]


def stamp_of(path: Path) -> Stamp | None:
    """By what it is seen that a file was replaced, rewritten or made readable; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


# ---- Reading a certificate ----

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
# The tags of X.690 that stand where a certificate's life is written.
_VERSION = 0xA0
_UTC_TIME = 0x17
_LONG_LENGTH = 0x80
# RFC 5280, 4.1.2.5.1: of a year of two digits, 50 and more are of the last century.
_CENTURY_FROM = 50


def _first(text: str) -> bytes:
    """The first certificate of a file: the server's own."""
    body = text.partition(_BEGIN)[2].partition(_END)[0]
    return ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}\n")


def expires_at(der: bytes) -> datetime:
    """When a certificate expires (RFC 5280, 4.1): `ssl` itself only tells of those of others."""
    _, certificate, _ = _element(der)
    _, rest, _ = _element(certificate)
    if rest[0] == _VERSION:
        _, _, rest = _element(rest)
    # Serial number, algorithm, issuer.
    for _ in range(3):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    tag, written, _ = _element(rest)
    text = written.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_FROM else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """The first element: its tag, what is in it, and what follows it (X.690, 8.1)."""
    tag, length, begin = der[0], der[1], 2
    if length & _LONG_LENGTH:
        begin += length & ~_LONG_LENGTH
        length = int.from_bytes(der[2:begin], "big")
    return tag, der[begin : begin + length], der[begin + length :]
