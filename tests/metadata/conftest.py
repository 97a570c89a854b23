"""What the tests of the endpoint are handed."""

from contextlib import ExitStack

import pytest

from tests.metadata.wireless import Wireless


@pytest.fixture
def wireless():
    """Makes endpoints without sockets; each is closed, and asked for faults, when the test ends."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Wireless(**options))
