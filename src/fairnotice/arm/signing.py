"""Access tokens that we sign, and believe only if we have: JSON Web Tokens, RS256 (RFC 7519).

    file = KeyFile(path)                            # make_key_file(path) where there is none yet
    text = file.keys.sign(claims)
    claims = file.keys.read(text, now, audiences)   # None, whatever is wrong with it

A file of keys holds one RSA key or several, in PEM. The first one signs and all are believed: to
rotate, put a new one in front, and take the old one out when what it signed has expired. A file
that changes is taken without a restart; a broken one changes nothing, and is logged. Several
control planes have the same file, and so believe each other (docs/decisions/0016-signing-in.md says
why it is no row of the store).
"""

import binascii
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fairnotice.control import private_files
from fairnotice.control.certificates import stamp_of
from fairnotice.errors import UsageError

log = logging.getLogger(__name__)

ALGORITHM: Literal["RS256"] = "RS256"
KEY_BITS = 2_048
# No token of ours is near it; whoever sends more is not read.
TEXT_CHARACTERS_MAX = 8_192
# The clocks of two control planes may differ by so much: a token of a moment ago counts at both.
SKEW_SECONDS = 60
# There is one tenant, and nobody has to choose its name.
TENANT = str(uuid5(NAMESPACE_URL, "https://fairnotice/tenant"))

_PEM_BEGIN = b"-----BEGIN "


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an access token says. Tools of Azure read `tid`, `oid` and `xms_mirid`."""

    # The id of the token of fairnotice (control/tokens.py) that it stands for.
    sub: str
    aud: str
    iss: str
    tid: str
    # Seconds since 1970.
    iat: int
    nbf: int
    exp: int
    oid: str
    appid: str
    jti: str = ""
    ver: str = "1.0"
    # The resource id of the VM whose identity it is.
    xms_mirid: str = ""
    # What people call it: the token's name.
    app_displayname: str = ""


class _Header(msgspec.Struct, frozen=True):
    """What must stand in front; whatever else does, is not asked for."""

    # No other is ever computed with: neither `none`, nor HS256 with a public key for its secret.
    alg: Literal["RS256"]
    kid: str
    typ: str = "JWT"
    # Extensions that must be understood (RFC 7515, 4.1.11), and none is.
    crit: None = None


class Key(NamedTuple):
    """An RSA key, and the name by which a token says that it was signed with it (RFC 7638)."""

    kid: str
    private: rsa.RSAPrivateKey


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_claims = msgspec.json.Decoder(Claims).decode


class Keys:
    """Keys of which the first one signs, and all are believed."""

    def __init__(self, keys: Collection[Key]) -> None:
        self._signs = next(iter(keys))
        self._known = {key.kid: key.private.public_key() for key in keys}
        self.jwks = msgspec.json.encode({"keys": [_shown(key) for key in keys]})

    def sign(self, claims: Claims) -> str:
        """This, so that nobody else could have said it."""
        header = {"typ": "JWT", "alg": ALGORITHM, "kid": self._signs.kid}
        said = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
        signature = self._signs.private.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{said}.{_encoded(signature)}"

    def read(self, text: str, now: datetime, audiences: Collection[str]) -> Claims | None:
        """What a token says, where we have signed it and it counts now; else None."""
        claims = self.signed(text)
        return claims if claims is not None and _counts(claims, now, audiences) else None

    def signed(self, text: str) -> Claims | None:
        """What a token says that we have signed, whether it counts or not."""
        parts = text.split(".")
        if len(text) > TEXT_CHARACTERS_MAX or len(parts) != 3 or not text.isascii():  # noqa: PLR2004
            return None
        try:
            header = _decode_header(_decoded(parts[0]))
            signed_with = self._known.get(header.kid)
            if signed_with is None:
                return None
            said = f"{parts[0]}.{parts[1]}".encode()
            signature = _decoded(parts[2])
            signed_with.verify(signature, said, padding.PKCS1v15(), hashes.SHA256())
            return _decode_claims(_decoded(parts[1]))
        except (msgspec.MsgspecError, binascii.Error, ValueError, InvalidSignature):
            return None


def _counts(claims: Claims, now: datetime, audiences: Collection[str]) -> bool:
    seconds = now.timestamp()
    return (
        claims.nbf - SKEW_SECONDS <= seconds < claims.exp
        and claims.tid == TENANT
        # Or one of us has signed it for itself: another control plane, with a URL of its own.
        and plain_audience(claims.aud) in {*audiences, plain_audience(own_url(claims.iss))}
    )


def issuer_at(url: str) -> str:
    """How the authority of a control plane at this URL is called."""
    return f"{url}/adfs"


def own_url(issuer: str) -> str:
    """At which URL the authority of this name is."""
    return issuer.removesuffix("/adfs")


def plain_audience(text: str) -> str:
    """An audience as it is compared: tools write it with a slash at the end, and without."""
    return text.rstrip("/").lower()


def _shown(key: Key) -> dict[str, str]:
    """The public half, as a JSON Web Key (RFC 7517)."""
    return {**_public(key.private), "use": "sig", "alg": ALGORITHM, "kid": key.kid}


def _public(key: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {"e": _number(numbers.e), "kty": "RSA", "n": _number(numbers.n)}


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    """Base64url without padding, and nothing beside it: one token has one spelling."""
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encoded(data) != text:
        raise binascii.Error("no base64url")
    return data


# ---- Files ----


def make_key_file(path: Path) -> None:
    """A new key in a file for its owner only, unless there is one."""
    if path.exists():
        return
    key = rsa.generate_private_key(public_exponent=65_537, key_size=KEY_BITS)
    private_files.make_directory(path.parent)
    private_files.write(path, pem(key))


def pem(key: rsa.RSAPrivateKey) -> bytes:
    """A key as its file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def keys_from(data: bytes, whence: str = "it") -> list[Key]:
    """The keys of a file; UsageError that says what is wrong with it."""
    blocks = [_PEM_BEGIN + one for one in data.split(_PEM_BEGIN)[1:]]
    if not blocks:
        raise UsageError(f"{whence} holds no key in PEM: make one with openssl genrsa 2048.")
    return [_key(block, whence) for block in blocks]


def _key(block: bytes, whence: str) -> Key:
    try:
        private = serialization.load_pem_private_key(block, None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{whence} is no private key in PEM without a passphrase.") from error
    if not isinstance(private, rsa.RSAPrivateKey) or private.key_size < KEY_BITS:
        raise UsageError(f"{whence} holds a key that is no RSA key of {KEY_BITS} bits or more.")
    # RFC 7638: the members in the order of their names, without a space.
    return Key(_encoded(sha256(msgspec.json.encode(_public(private))).digest()), private)


class KeyFile:
    """The keys of a file, as they are whenever they are used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp_of(path)
        self._keys = _read(path)

    @property
    def keys(self) -> Keys:
        """Those in force."""
        stamp = stamp_of(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = _read(self._path)
            except UsageError as error:
                log.warning("tokens are signed with the keys there were: %s", error)
            else:
                log.info("%s was taken anew", self._path)
        return self._keys


def _read(path: Path) -> Keys:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return Keys(keys_from(data, str(path)))
