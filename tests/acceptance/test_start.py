"""docs/start.md, followed by somebody who copies every block of it into a terminal."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.test_up import control, lines, started

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "start.md").read_text("utf-8")


def blocks():
    """What is copied, in its order."""
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_block_is_make_up():
    """It is the one thing that has to be known."""
    assert blocks()[0] == "make up\n"
    assert "up: " in (ROOT / "Makefile").read_text("utf-8")


def test_ten_minutes_work_as_they_are_written(tmp_path):
    """Read as a VM, restart, list, approve, history: every command ends well, and says so."""
    with started(tmp_path, "--store", "memory:", "--rate-limit", "off") as (_, said):
        api = control(said)
        metadata = re.search(r"http://127\.0\.0\.1:\d+(?=/vm)", lines(said)[0])[0]
        script = "set -e\n" + "\necho '----'\n".join(blocks()[1:])
        script = script.replace("http://127.0.0.1:8600", api).replace(
            "http://127.0.0.1:8169", metadata
        )
        script = script.replace(".venv/bin/fairnotice", f"{sys.executable} -m fairnotice")
        # The page says to look again; here somebody does.
        look = blocks()[1].strip().replace("http://127.0.0.1:8169", metadata)
        script = script.replace("event list", f"event list; {look} >/dev/null", 1)
        ran = subprocess.run(  # noqa: S603 - our own page
            [shutil.which("bash"), "-c", script],
            cwd=ROOT,
            env={**os.environ, "FAIRNOTICE_URL": api},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    read, restarted, listed, _, history = ran.stdout.split("----\n")
    assert read.strip() == '{"DocumentIncarnation":1,"Events":[]}'
    assert "web-0" in restarted
    assert "Scheduled" in listed or "announced" in listed
    assert "approved by web-0" in history
    assert "first seen by web-0" in history or "announced" in history
