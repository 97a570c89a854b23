"""`fairnotice conform` and the agent: it survives every situation."""

import sys

from fairnotice.testing.conform import Declared, conform

# Most of the time is waiting.
JOBS = 12


def test_the_agent_conforms(tmp_path):
    """It acknowledges what is its own, leaves the rest alone, and goes on."""
    (tmp_path / "agent.toml").write_text(
        'heartbeat_seconds = 1\n[[rule]]\nduration_at_least = 0\nprepare = ["say"]\n'
        '[handler.say]\nkind = "command"\nprepare = ["true"]\n'
    )
    agent = f"{sys.executable} -m fairnotice agent run --config {tmp_path}/agent.toml"
    # Each situation has an agent of its own, and so a journal of its own.
    command = f"STATE_DIRECTORY=$(mktemp -d {tmp_path}/state.XXXXXX) exec {agent}"
    declared = Declared(("sh", "-c", command), poll_seconds=1.0, first_leads=True)
    report = conform(declared, jobs=JOBS)
    assert [(one.situation, one.why) for one in report.results if one.why] == []
    assert report.survived
