"""The worker as a program of its own: it could be written in any language."""

import subprocess
import sys

import draining_worker


def test_the_program_gives_the_go_ahead(fairnotice_cloud):
    command = [sys.executable, draining_worker.__file__, "web-0"]
    environment = fairnotice_cloud.environment("web-0")
    with subprocess.Popen(command, env=environment) as program:
        try:
            event = fairnotice_cloud.vm("web-0").restart()
            fairnotice_cloud.wait_until(lambda: event.approved_by == "web-0")
        finally:
            program.terminate()
