"""Waiting until something is so."""

import threading

PATIENCE_SECONDS = 15.0
EVERY_SECONDS = 0.02


def until(holds):
    """Return when it holds; an AssertionError where it does not in time."""
    for _ in range(int(PATIENCE_SECONDS / EVERY_SECONDS)):
        if holds():
            return
        threading.Event().wait(EVERY_SECONDS)
    raise AssertionError("it did not come to be so")
