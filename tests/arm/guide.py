"""What docs/guides/azure-tools.md tells a reader to type."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/guides/azure-tools.md").read_text("utf-8")


def redeploy_of(page):
    """The line that redeploys an instance of a scale set."""
    (line,) = (one for one in re.findall(r"`(az rest [^`]+)`", page) if "/redeploy?" in one)
    return line
