"""Situations in which the endpoint is not there, or is gone and comes back."""

from fairnotice.testing.conform.scene import Scene
from fairnotice.testing.conform.situation import Situation

AWAY_POLLS = 3
AWAY_SECONDS_MIN = 1.0
TIMES = 3


def _away_seconds(scene: Scene) -> float:
    return max(AWAY_POLLS * scene.declared.interval_seconds, AWAY_SECONDS_MIN)


def _refused_at_start(scene: Scene) -> None:
    scene.client.start()
    scene.tell("connections had been refused since it was started")
    # It takes a while to start, and has to have asked by then.
    scene.lives_on(_away_seconds(scene) + 2 * scene.declared.start_seconds)
    scene.endpoint.open()
    scene.tell("connections had been refused when it was started, and were taken now")
    scene.polls_on(2)
    scene.recovers()


def _restarted(scene: Scene) -> None:
    scene.begin()
    scene.endpoint.shut()
    scene.tell("the endpoint had gone away")
    scene.lives_on(_away_seconds(scene))
    scene.endpoint.open()
    scene.tell("the endpoint had gone away and come back")
    scene.recovers()


def _connections_closed(scene: Scene) -> None:
    scene.begin()
    scene.tell("its connection had been closed between two polls")
    for _ in range(TIMES):
        scene.endpoint.drop_connections()
        scene.polls_on(1)
    scene.recovers()


SITUATIONS = (
    Situation(
        "refused-at-start",
        "Nobody listens yet when it is started: connections are refused.",
        "Try again: a VM may be up before its endpoint is.",
        "Where",
        _refused_at_start,
    ),
    Situation(
        "endpoint-restarts",
        "The endpoint goes away, refuses connections for a while, and comes back.",
        "Try again until it is there.",
        "Where",
        _restarted,
    ),
    Situation(
        "connection-closed",
        "The endpoint closes its connection between two polls.",
        "Open a new one: a connection that was kept may be gone.",
        "Requests",
        _connections_closed,
    ),
)
