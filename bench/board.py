"""What the board costs: the time to publish a change, and the memory each VM takes.

Memory is all that the board keeps alive, by tracemalloc: the fleet that fed it is let go, so names
and addresses count too, as in an endpoint process, where the board alone holds them. Every VM has
asked, as all do after a few seconds. Nothing is pending, so the documents are the empty ones that
all scopes share, and what is counted is what there is beyond the documents.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator

from bench.boards import board_of, document_of, scope_of
from bench.fleets import START
from bench.numbers import Number
from fairnotice.metadata.board import Board
from fairnotice.metadata.rate import DEFAULT, admit

SCOPE_VMS = 100
MILLISECONDS_AT_MOST = 1
BYTES_AT_MOST = 600


def measure(vms: int, publications: int) -> Iterator[Number]:
    """Milliseconds per publication, bytes per VM."""
    yield from _publishing(board_of(vms), vms, publications)
    yield from _memory(vms)


def _publishing(board: Board, vms: int, publications: int) -> Iterator[Number]:
    """A scope of 100 VMs, all of them hit by its one event, in all api-versions."""
    scope = scope_of("hundred")
    names = [f"hundred-{number:02}" for number in range(SCOPE_VMS)]
    board.publish(scope, document_of(scope, 1, names))
    for number, name in enumerate(names):
        board.put_caller(name, scope.name, (f"11.0.0.{number}",))
    milliseconds = []
    for incarnation in range(2, publications + 2):
        document = document_of(scope, incarnation, names)
        began = time.perf_counter()
        board.publish(scope, document)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    yield Number(
        name=f"publishing a scope of {SCOPE_VMS} VMs, {vms:,} VMs on the board",
        values=milliseconds,
        unit="ms",
        at_most=MILLISECONDS_AT_MOST,
    )


def _memory(vms: int) -> Iterator[Number]:
    """What a board takes once it stands alone."""
    tracemalloc.start()
    before = _bytes_alive()
    board = board_of(vms)
    _everybody_asks(board)
    taken = _bytes_alive() - before
    tracemalloc.stop()
    yield Number(
        name=f"memory per VM on the board, {vms:,} VMs",
        values=[taken / vms],
        unit="bytes",
        at_most=BYTES_AT_MOST,
    )


def _everybody_asks(board: Board) -> None:
    """Leave behind what a poll leaves, each at an instant of its own."""
    for number, caller in enumerate(board.callers.values()):
        now = 1000.0 + number / 1000
        admit(caller, now, DEFAULT)
        caller.page.asked_at = caller.asked_at = now
        board.note(caller, caller.page.answers[-1], START.wall)


def _bytes_alive() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
