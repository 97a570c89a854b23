"""What request bytes must never do, whoever made them up: Hypothesis, atheris or a person."""

from itertools import pairwise

from tests.engine.story import DB
from tests.metadata.wireless import (
    DB_0,
    PATH,
    WEB_0,
    Wireless,
    approval,
    get,
    post,
    read_answers,
    request,
)

# A wait, its idle time, and the patience with whoever does not hang up; for each wait in an input.
STEP_SECONDS = 5
LONGEST_SECONDS = 2_000

CHUNKED = request("POST", f"{PATH}?api-version=2020-07-01", "Transfer-Encoding: chunked")
UNKNOWN = "00000000-1111-2222-3333-444444444444"
# Whole requests of all kinds that leave the connection open.
WHOLE = {
    "poll": get(),
    "old poll": get(version="2017-03-01", metadata=None),
    "condition": get('If-None-Match: "1-2"'),
    "no header": get(metadata=None),
    "nowhere": request("GET", "/nowhere"),
    "method": request("PUT"),
    "forwarded": get("X-Forwarded-For: 1"),
    "absolute": request("GET", f"http://169.254.169.254{PATH}?api-version=2019-08-01"),
    "upgrade": get("Connection: Upgrade", "Upgrade: h2c"),
    "not JSON": post(b"nonsense"),
    "looks like a poll": post(get()),
    "unknown id": approval(UNKNOWN),
    "chunks": CHUNKED + b"3\r\n{}\n\r\n0\r\n\r\n",
    "instance": request("GET", "/metadata/instance?api-version=2021-02-01"),
    "kept 1.0": get("Connection: keep-alive", http="HTTP/1.0"),
    "blank lines before": b"\r\n\r\n" + get(),
}


def world_of_two():
    """The scopes of web and db have an event each; web must never learn of db's."""
    world = Wireless()
    world.stage.restart_vm("web-0")
    world.stage.restart_vm("db")
    return world


def received(world, pieces):
    """All that a VM of web receives for these pieces, and whether it was closed."""
    line = world.connect(WEB_0)
    for piece in pieces:
        world.run(lambda piece=piece: line.feed(piece))
    return bytes(line.received), line.is_closing()


def cut(data, places):
    """The same bytes in pieces."""
    marks = sorted({0, *(place % (len(data) + 1) for place in places), len(data)})
    return [data[start:end] for start, end in pairwise(marks)]


def must_be_harmless(world, data, places=()):
    """Answers that are HTTP, none of them a neighbour's, and nobody else is hurt."""
    foreign = world.stage.only(DB).id.encode()
    world.stage.clock.advance(seconds=100)
    other = world.connect(DB_0)
    world.run(lambda: other.feed(get()[:40]))
    line = world.connect(WEB_0)
    for piece in cut(data, places):
        world.run(lambda piece=piece: line.feed(piece))
    world.run(lambda: other.feed(get()[40:]))
    (answer,) = other.read()
    assert answer.status == 200
    time_takes_all(world)
    received = bytes(line.received)
    # Whatever was said is answered, if only by a 408; a connection that says nothing just ends.
    assert bool(received) == bool(data.strip(b"\r\n"))
    # The answer to a HEAD has no body. It may follow the body of another request at once.
    if b"HEAD" not in data:
        read_answers(received)
    assert foreign not in received
    assert line.closed
    assert world.worker.held_count == 0
    assert world.mishaps.found == []


def time_takes_all(world):
    """Waits end, unfinished requests are answered, idle connections closed: none is left."""
    for _ in range(LONGEST_SECONDS // STEP_SECONDS):
        if not world.worker.connections:
            return
        world.stage.clock.advance(seconds=STEP_SECONDS)
        world.run()
        world.run(world.worker.sweep)
    raise AssertionError(f"{len(world.worker.connections)} connections are left")
