"""Styles and scripts, with addresses that change when they do: a browser keeps them for good."""

import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
DIGEST_CHARACTERS = 12


class Asset(NamedTuple):
    """One file as it is sent."""

    body: bytes
    zipped: bytes
    media_type: str


def _read() -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for path in sorted(files("fairnotice.portal").joinpath("static").iterdir(), key=str):
        kind = path.name.rpartition(".")[2]
        if kind in MEDIA_TYPES:
            body = path.read_bytes()
            found[path.name] = Asset(body, gzip.compress(body, mtime=0), MEDIA_TYPES[kind])
    return found


ASSETS = _read()
# One for all: modules import each other by name, so that a new one of them is new for all.
BUILD = sha256(b"".join(asset.body for asset in ASSETS.values())).hexdigest()[:DIGEST_CHARACTERS]


@cache
def address_of(name: str) -> str:
    """Where a file of ours is."""
    assert name in ASSETS, name
    return f"/static/{BUILD}/{name}"
