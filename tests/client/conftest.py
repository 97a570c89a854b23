"""What the tests of the clients share."""

import pytest

from fairnotice.testing import Cloud
from tests.client.kinds import KINDS


@pytest.fixture(params=KINDS)
def kind(request):
    """Each kind of client."""
    return KINDS[request.param]


@pytest.fixture
def cloud():
    """A whole service with the sample fleet."""
    with Cloud() as it:
        yield it
