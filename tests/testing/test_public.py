"""What `fairnotice.testing` offers can be imported from it."""

import subprocess
import sys

import pytest

import fairnotice.testing


@pytest.mark.parametrize("name", fairnotice.testing.__all__)
def test_every_public_name_is_there_again_and_again(name):
    """The thing itself, not the module that it is in."""
    for _ in range(2):
        assert getattr(fairnotice.testing, name).__name__ == name


def test_what_is_not_public_is_not_there():
    """It is said in a sentence."""
    with pytest.raises(AttributeError, match="has no check_everything"):
        _ = fairnotice.testing.check_everything


def test_a_clock_needs_nothing_else():
    """Inside a VM there is the standard library and us."""
    program = (
        "import sys; from fairnotice.testing import ManualClock;"
        "sys.exit(any(name in sys.modules for name in ('msgspec', 'starlette', 'uvloop')))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 - our own line
