"""What the tests of the drivers are given."""

import pytest

from tests.drivers.commands import Bench


@pytest.fixture
def bench(tmp_path):
    """A ledger and a state directory of its own."""
    return Bench(tmp_path)
