"""The pytest plugin, as a project that uses it meets it."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing-python.md"

OWN_FLEET_FOR_ALL = """
import pytest

@pytest.fixture
def fairnotice_fleet():
    return {"node": [{"name": "n"}], "vm": [{"name": "mine", "node": "n"}]}

def test_all_have_it(fairnotice_cloud):
    assert list(fairnotice_cloud.fleet.vms) == ["mine"]

@pytest.mark.fairnotice(fleet=None, listening=False)
def test_but_one(fairnotice_cloud):
    assert "web-0" in fairnotice_cloud.fleet.vms
    assert not fairnotice_cloud.fleet.scopes["availability-set:web"].enabled

@pytest.mark.fairnotice(timming="dev")
def test_mistyped(fairnotice_cloud):
    pass

@pytest.mark.fairnotice("[[node]]")
def test_without_a_name(fairnotice_cloud):
    pass
"""


def pytest_says(folder: Path, text: str, *options: str) -> str:
    """What pytest says of this file, in a folder of its own and with no configuration of ours."""
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_the_fleet_is_that_of_the_file_or_of_the_marker(tmp_path):
    """A marker that is mistyped fails its test and says so."""
    said = pytest_says(tmp_path, OWN_FLEET_FOR_ALL)
    assert "2 passed, 2 errors" in said
    assert "timming" in said
    assert "by name: fleet=" in said


def test_what_the_guide_shows_is_true(tmp_path):
    """The example with a fleet of its own, as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (example,) = (block for block in blocks if "def test_alone" in block)
    assert "1 passed" in pytest_says(tmp_path, example)


def test_the_marker_and_the_fixtures_explain_themselves(tmp_path):
    """`pytest --markers` and `pytest --fixtures` are where people look."""
    assert "@pytest.mark.fairnotice(fleet=None" in pytest_says(tmp_path, "", "--markers")
    said = pytest_says(tmp_path, "", "--fixtures")
    assert "A whole fairnotice for this test alone" in said
