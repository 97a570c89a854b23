"""Killed at any moment, nothing that was answered is lost and nothing happens twice."""

import asyncio
import os

import pytest

from tests.conductor.killing import hold_to_account, kill_again_and_again

# `make soak` kills 500 and 200 times.
KILLS_SQLITE = int(os.environ.get("KILLS_SQLITE", "40"))
KILLS_POSTGRES = int(os.environ.get("KILLS_POSTGRES", "20"))
SEED = int(os.environ.get("KILL_SEED", "1"))


def killed(folder, url, mode, times):
    """Kill it so often, then look."""
    promises = asyncio.run(kill_again_and_again(folder, url, mode, times, SEED))
    assert promises.accepted
    assert promises.approved
    assert promises.polls > times
    hold_to_account(folder, url, mode, promises)


@pytest.mark.parametrize("mode", ["answers", "cannot"])
def test_killed_on_sqlite(tmp_path, mode):
    """Half of the kills with a driver that can answer for a key, half with one that cannot."""
    killed(tmp_path, f"sqlite:{tmp_path}/fairnotice.db", mode, KILLS_SQLITE // 2)


@pytest.mark.parametrize("mode", ["answers", "cannot"])
def test_killed_on_postgres(tmp_path, postgres_url, mode):
    """The same on PostgreSQL."""
    killed(tmp_path, postgres_url, mode, KILLS_POSTGRES // 2)


def test_a_careless_service_is_found_out(tmp_path):
    """One that answers before it commits loses what it has promised: the proof can fail."""
    with pytest.raises(AssertionError):
        killed(tmp_path, f"sqlite:{tmp_path}/fairnotice.db", "careless", 5)
