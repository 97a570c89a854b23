"""The pytest plugin: a cloud for each test that asks for one.

It loads with every run of pytest where fairnotice is installed, so it imports nothing until a test
asks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fairnotice.testing.clouds.cloud import Cloud

MARKER = """\
fairnotice(fleet=None, timing="azure", start=None, listening=True, ...): what the cloud of this test
is made with; see fairnotice.testing.Cloud. `fleet` is a fleet file's text or path."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER.replace("\n", " "))


@pytest.fixture
def fairnotice_fleet() -> str | Path | dict[str, Any] | None:
    """The fleet of `fairnotice_cloud`; override it where all tests of a file have their own."""
    return None


@pytest.fixture
def fairnotice_cloud(
    request: pytest.FixtureRequest, fairnotice_fleet: str | Path | dict[str, Any] | None
) -> "Iterator[Cloud]":
    """A whole fairnotice for this test alone, with a clock that the test owns.

    event = fairnotice_cloud.vm("web-0").restart()
    fairnotice_cloud.advance(minutes=15)
    """
    try:
        from fairnotice.testing.clouds.cloud import Cloud  # noqa: PLC0415 - nothing until a test asks
    except ModuleNotFoundError as error:
        missing = f"fairnotice_cloud needs {error.name}: pip install 'fairnotice[server]'"
        raise pytest.UsageError(missing) from error
    marker = request.node.get_closest_marker("fairnotice")
    if marker is not None and marker.args:
        raise pytest.UsageError("Give what the marker fairnotice takes by name: fleet=…, timing=…")
    wishes = {"fleet": fairnotice_fleet, **(marker.kwargs if marker is not None else {})}
    with Cloud(**wishes) as cloud:
        yield cloud
