"""`python -m fairnotice`: the same as `fairnotice`."""

import sys

from fairnotice.cli.main import command

sys.exit(command())
