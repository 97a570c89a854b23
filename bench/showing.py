"""From the answer to a command to the new document being served, while others poll.

The service, on SQLite, has one core. On the other are those who poll, and the one who commands
and then asks for the document until it is the new one.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from bench.databases import build
from bench.numbers import LeftOut, Number
from bench.pollers import POLLS_PER_SECOND, start_pollers
from bench.processes import Process, cores
from bench.service_process import SOCKET, start_service

STEADY_VMS = 1_000
CHANGED_VMS = 500
# Milliseconds: the median, and the 99th percentile.
AT_MOST = (2, 10)


def measure(folder: Path, vms: int, rounds: int, changes: int) -> Iterator[Number | LeftOut]:
    """Median and 99th percentile of each round, and how many polls were answered meanwhile."""
    pinned = cores()
    if pinned is None:
        yield LeftOut("from the answer to the new document", "needs two cores, one for the load")
        return
    url = f"sqlite:{folder / 'showing.db'}"
    build(url, vms, enabled=True)
    started: list[Process] = []
    try:
        started.append(service := start_service(url, folder, pinned.server))
        port = service.listen()["port"]
        for kind, which in (
            ("steady", range(STEADY_VMS)),
            ("changing", range(STEADY_VMS, STEADY_VMS + CHANGED_VMS)),
        ):
            started.append(
                start_pollers(
                    kind,
                    port=port,
                    vms=which,
                    core=pinned.load,
                    folder=folder,
                    commands=folder / SOCKET,
                )
            )
            started[-1].listen()
        yield from _numbers(started[1], started[2], rounds, changes)
    finally:
        for process in reversed(started):
            process.end()


def _numbers(steady: Process, changing: Process, rounds: int, changes: int) -> Iterator[Number]:
    shown, answered, polls = [], [], []
    changing.ask(changes=changes // 5)  # warms up
    for _ in range(rounds):
        steady.ask()
        said = changing.ask(changes=changes)
        polls.append(steady.ask()["per_second"])
        shown.append(said["until_shown"])
        answered.append(said["until_answer"])
    yield from until_shown("the new document, SQLite", shown, AT_MOST)
    yield Number(
        name="  polls answered meanwhile", values=polls, unit="per s", at_least=POLLS_PER_SECOND
    )
    yield Number(
        name="  from the command to its answer",
        values=[median(times) for times in answered],
        unit="ms",
    )
    yield Number(name="  p99", values=[_p99(times) for times in answered], unit="ms")


def until_shown(
    what: str, shown: list[list[float]], at_most: tuple[float, float]
) -> Iterator[Number]:
    """Milliseconds from the answer until this was shown, a list for each round."""
    medians, p99s = [median(times) for times in shown], [_p99(times) for times in shown]
    yield Number(name=f"from the answer to {what}", values=medians, unit="ms", at_most=at_most[0])
    yield Number(name="  p99", values=p99s, unit="ms", at_most=at_most[1])


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[-1]
