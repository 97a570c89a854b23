"""What the tests of the drivers are given."""

import pytest

from tests.drivers.commands import Bench


@pytest.fixture
def bench(tmp_path):
    """A ledger and a state directory of its own."""
    return Bench(tmp_path)


@pytest.fixture
def no_patience(monkeypatch):
    """What libvirt's driver tries again it tries at once."""
    from fairnotice.drivers.libvirt import footing  # noqa: PLC0415 - it needs libvirt's library

    monkeypatch.setattr(footing, "TRY_AGAIN_SECONDS", (0.0, 0.0))


@pytest.fixture
def fresh(tmp_path):
    """Makes two libvirt nodes and a running VM, anew each time."""
    from tests.drivers.libvirt_nodes import fresh_nodes  # noqa: PLC0415 - it needs libvirt's library

    return fresh_nodes(tmp_path)
