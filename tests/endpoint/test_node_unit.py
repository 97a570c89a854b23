"""What is shipped for a node: its unit, and the example of an endpoint's file."""

import os
import shutil
import subprocess
import sys

import pytest

from fairnotice.endpoint.config import read
from fairnotice.endpoint.node_setup import Wanted, by_hand
from tests.house import ROOT


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="systemd-analyze is not installed",
)
def test_a_node_is_set_up_at_each_boot(tmp_path):
    """No fault is found with the units, for a bridge by its name."""
    files = []
    for name in (
        "fairnotice-node@.service",
        "fairnotice-places@.service",
        "fairnotice-places@.path",
    ):
        unit = (ROOT / "deploy" / name).read_text("utf-8")
        here = unit.replace("/usr/local/bin/fairnotice ", f"{sys.executable} -m fairnotice ")
        files.append(tmp_path / name.replace("@", "@br0"))
        files[-1].write_text(here)
    line = ["systemd-analyze", "verify", *map(str, files)]
    found = subprocess.run(line, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    assert (found.returncode, found.stderr) == (0, "")


def test_the_example_and_what_is_left_by_hand_are_read(tmp_path):
    """Both say the same about the network."""
    example = read(ROOT / "deploy" / "endpoint.toml")
    path = tmp_path / "endpoint.toml"
    top = 'node = "n"\ncontrol_planes = ["https://cp1.example.net:8600"]\n'
    path.write_text(top + by_hand(Wanted("br0")))
    printed = read(path)
    assert example.manner.network == printed.manner.network
    assert example.classic == printed.classic == ("168.63.129.16", 80)
