"""A service and a receiver for each test."""

import pytest

from tests.control.calling import serving
from tests.deliveries.receivers import receiving


@pytest.fixture
def receiver():
    """One that takes everything."""
    with receiving() as one:
        yield one


@pytest.fixture
def served():
    """A service that tries again at once."""
    with serving() as one:
        one.run.delivering.retry_seconds = (0.05,)
        yield one


@pytest.fixture
def hook(served):
    """Makes webhooks."""

    def make(receiver, name="ops", **more):
        answer = served.post("/v1/webhooks", {"name": name, "url": receiver.url, **more})
        assert answer.status == 200, answer
        return answer.json

    return make
