"""What the tests of the command line are handed: a service per file, and `fairnotice`."""

from functools import partial

import pytest

from tests.cli.typed import served, typed


@pytest.fixture(scope="module")
def service():
    """A service with the sample fleet, in which VMs listen."""
    with served() as there:
        yield there


@pytest.fixture
def fairnotice(service):
    """Type a command for this service."""
    return partial(typed, url=service.url)
