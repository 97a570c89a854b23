"""What `doctor` finds: one thing that was looked at, and how it is."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at. What is wrong makes the exit code 1; a note does not."""

    what: str
    state: str
    sentence: str


def fine(what: str, sentence: str) -> Finding:
    """As it should be."""
    return Finding(what, "fine", sentence)


def noted(what: str, sentence: str) -> Finding:
    """Nothing wrong, but good to know."""
    return Finding(what, "note", sentence)


def wrong(what: str, sentence: str) -> Finding:
    """To be put right, and how."""
    return Finding(what, "wrong", sentence)
