"""The address of the backup: everything that is remembered, as a stream."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from fairnotice.control.route import Call, Route
from fairnotice.stores.backups import Bytes, written
from fairnotice.words import TokenRole

MEDIA_TYPE = "application/gzip"


async def _back_up(call: Call) -> Response:
    """Begin a backup, so that what keeps it from beginning is said; then send it."""
    conductor = call.service.conductor
    copy = await conductor.ask_store(lambda store: store.copy())
    pieces = written(copy, conductor.now().wall)
    first = await asyncio.to_thread(next, pieces)
    return StreamingResponse(_sent(first, pieces), media_type=MEDIA_TYPE)


async def _sent(first: bytes, rest: Bytes) -> AsyncIterator[bytes]:
    """One piece after another, each made in a thread: commits go on meanwhile."""
    piece: bytes | None = first
    making: asyncio.Future[bytes | None] | None = None
    try:
        while piece is not None:
            yield piece
            making = asyncio.ensure_future(asyncio.to_thread(next, rest, None))
            piece = await asyncio.shield(making)
    finally:
        if making is None or making.done():
            rest.close()
        else:
            # Whoever read it is gone, and a piece is being made: closed when that is done.
            making.add_done_callback(lambda _: rest.close())


BACKUP_ROUTES = (
    Route(
        "GET",
        "/v1/backup",
        "Everything that is remembered, at one revision: a file for `fairnotice restore`.",
        _back_up,
        bytes,
        TokenRole.ADMIN,
        media_type=MEDIA_TYPE,
    ),
)
