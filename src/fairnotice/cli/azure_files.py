"""Where this machine keeps what Azure's tools need: `up` makes it, `az-login` finds it."""

from pathlib import Path

from fairnotice.cli import settings
from fairnotice.stores.opening import sqlite_file


def service_directory(store: str) -> Path:
    """The certificates and keys of a service: beside what it keeps, or where `up` keeps that."""
    return _beside(store) / "azure-tools"


def az_directory(store: str) -> Path:
    """What becomes AZURE_CONFIG_DIR, where nobody says another."""
    return _beside(store) / "azure"


def _beside(store: str) -> Path:
    path = sqlite_file(store) or sqlite_file(settings.BY_NAME["store"].default())
    assert path is not None
    return path.parent
