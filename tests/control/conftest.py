"""What the tests of the control plane are handed."""

import pytest

from fairnotice.stores.memory import MemoryStore
from tests.control.bearers import Bearers
from tests.control.calling import serving


@pytest.fixture(scope="module")
def asking():
    """One service for the tests that leave it as it was."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        yield Bearers(served, store)
