"""What the tests of Azure Resource Manager's front are handed."""

import pytest

from fairnotice.stores.memory import MemoryStore
from tests.arm.calling import asked
from tests.control.bearers import Bearers


@pytest.fixture
def arm():
    """A service that Azure's tools may ask, for one test."""
    with asked() as found:
        yield found


@pytest.fixture(scope="module")
def looking():
    """One for the tests that leave it as it was."""
    with asked() as found:
        yield found


@pytest.fixture(scope="module")
def gated():
    """One that wants tokens, and somebody of each kind who asks it: also left as it was."""
    store = MemoryStore()
    with asked(store, auth=True) as found:
        yield Bearers(found, store)
