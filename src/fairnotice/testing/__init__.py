"""Public: what helps to test with fairnotice, and whatever keeps to its ports.

from fairnotice.testing import Cloud, ManualClock, check_driver, check_store

Each is loaded when it is asked for: a clock needs nothing, a contract needs the `server` extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairnotice.testing.clouds.cloud import Cloud, CloudRefused
    from fairnotice.testing.conducted import ConductedStage
    from fairnotice.testing.driver_contract import check_driver
    from fairnotice.testing.live import LiveStage
    from fairnotice.testing.manual_clock import ManualClock
    from fairnotice.testing.recordings.replayer import Replay
    from fairnotice.testing.stage import Stage
    from fairnotice.testing.store_contract import check_store

_WHERE = {
    "Cloud": "clouds.cloud",
    "CloudRefused": "clouds.cloud",
    "ConductedStage": "conducted",
    "LiveStage": "live",
    "ManualClock": "manual_clock",
    "Replay": "recordings.replayer",
    "Stage": "stage",
    "check_driver": "driver_contract",
    "check_store": "store_contract",
}

__all__ = [
    "Cloud",
    "CloudRefused",
    "ConductedStage",
    "LiveStage",
    "ManualClock",
    "Replay",
    "Stage",
    "check_driver",
    "check_store",
]


def __getattr__(name: str) -> object:
    """What is public, by its name."""
    if name not in _WHERE:
        raise AttributeError(f"fairnotice.testing has no {name}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
