"""The coverage-guided fuzzer, for a moment; `make soak` lets it run for minutes."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

SECONDS = "15"


def test_a_coverage_guided_fuzzer_finds_nothing(tmp_path):
    """No traceback, no hang, no cut answer and no neighbour's event, whatever the bytes."""
    if find_spec("atheris") is None:
        if os.environ.get("CI"):
            pytest.fail("atheris is not installed: scripts/test-tools")
        pytest.skip("atheris is not installed: scripts/test-tools")
    line = [sys.executable, "-m", "tests.metadata.fuzz_requests", f"-max_total_time={SECONDS}"]
    line.append(f"-artifact_prefix={tmp_path}/")
    ran = subprocess.run(  # noqa: S603 - our own line
        line, check=False, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "cov:" in ran.stderr
