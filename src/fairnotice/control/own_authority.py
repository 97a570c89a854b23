"""A certificate authority of our own, for whoever tries things out on one machine.

    own = OwnAuthority(directory, clock)     # makes what is missing
    Certificates(own.pair, clock)            # certificates.py, which sees by itself what is renewed
    own.ca                                   # the PEM file that clients are to trust
    await own.renewing()                     # for as long as the service lives

The authority is made at the first start and kept. Its certificate says that it may vouch for this
machine's own names and for nothing else (RFC 5280, 4.2.1.10), so that whoever trusts it does not
trust whoever steals it with the rest of the web. The server's certificate is renewed long before it
expires, by the same authority, which lives for as long as anybody will use one installation.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairnotice.clock import Clock
from fairnotice.control import private_files
from fairnotice.control.certificates import Pair
from fairnotice.errors import UsageError

CA_DAYS = 3_650
SERVER_DAYS = 90
RENEW_DAYS = 30
LOOK_EVERY_SECONDS = 3_600.0
# Clocks that are compared may differ by so much.
BACKDATED = timedelta(hours=1)
DNS_NAMES = ("localhost",)
ADDRESSES = ("127.0.0.1", "::1")
VOUCHED_NETWORKS = ("127.0.0.0/8", "::1/128")
_ANOTHER = "another is made, which clients must be told to trust: fairnotice az-login."


class OwnAuthority:
    """The files of an authority and of the server it vouches for; what is missing is made."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self.ca = directory / "ca.pem"
        # One file for both: nobody reads the key of one and the certificate of another.
        self.pair = Pair(directory / "server.pem", directory / "server.pem")
        self._ca_key = directory / "ca.key"
        self._clock = clock
        self.renew()

    async def renewing(self) -> None:
        """Renew in time, for as long as the task lives."""
        while True:
            await self._clock.sleep(LOOK_EVERY_SECONDS)
            self.renew()

    def renew(self) -> None:
        """Make what is missing or soon expires; UsageError where the files cannot be."""
        private_files.make_directory(self.directory)
        with _alone(self.directory):
            now = self._clock.wall()
            ca = self._read(self.ca)
            if ca is None or not self._ca_key.exists() or _left(ca, now) < SERVER_DAYS:
                ca = self._make_ca(now)
            # Whatever it signed otherwise, nobody would believe, and nobody would say why.
            self._must_match(ca)
            server = self._read(self.pair.certificate)
            if server is None or not _vouches(ca, server) or _left(server, now) < RENEW_DAYS:
                self._make_server(ca, now)

    def _must_match(self, ca: x509.Certificate) -> None:
        if self._read_ca_key().public_key() != ca.public_key():
            raise UsageError(
                f"{self._ca_key} is not the key of {self.ca}. Put back the other one of the two, "
                f"or remove both: {_ANOTHER}"
            )

    def _read(self, path: Path) -> x509.Certificate | None:
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} is no certificate that can be read. Put it back, or remove "
                f"{self.directory}: {_ANOTHER}"
            ) from error

    def _make_ca(self, now: datetime) -> x509.Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        # Named by its key: after a new one is made, nobody takes the one for the other.
        mark = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        name = _name(f"fairnotice on this machine {mark.digest.hex()[:8]}")
        usage = _usage(signs_certificates=True)
        ca = (
            _begun(name, name, key.public_key(), now, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(mark, critical=False)
            .add_extension(x509.NameConstraints(list(_vouched_for()), None), critical=True)
            .sign(key, hashes.SHA256())
        )
        private_files.write(self._ca_key, _pem(key))
        private_files.write(self.ca, ca.public_bytes(serialization.Encoding.PEM))
        return ca

    def _make_server(self, ca: x509.Certificate, now: datetime) -> None:
        ca_key = self._read_ca_key()
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            *map(x509.DNSName, DNS_NAMES),
            *(x509.IPAddress(ip_address(one)) for one in ADDRESSES),
        ]
        mark = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer_mark = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        server = (
            _begun(_name(DNS_NAMES[0]), ca.subject, key.public_key(), now, SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(mark, critical=False)
            .add_extension(issuer_mark, critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        both = server.public_bytes(serialization.Encoding.PEM) + _pem(key)
        private_files.write(self.pair.certificate, both)

    def _read_ca_key(self) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(self._no_key()) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UsageError(self._no_key())
        return key

    def _no_key(self) -> str:
        return (
            f"{self._ca_key} is no key of ours that can be read. Put it back, or remove it and "
            f"{self.ca}: {_ANOTHER}"
        )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """While no other process makes files there."""
    held = os.open(directory / ".lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _vouches(ca: x509.Certificate, server: x509.Certificate) -> bool:
    try:
        server.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _left(certificate: x509.Certificate, now: datetime) -> float:
    """For how many days it is still good."""
    return (certificate.not_valid_after_utc - now) / timedelta(days=1)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _vouched_for() -> Iterator[x509.GeneralName]:
    yield from map(x509.DNSName, DNS_NAMES)
    for network in VOUCHED_NETWORKS:
        yield x509.IPAddress(ip_network(network))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
