"""The store of `serve`, waited for: after a power cut the database may be the last to come back."""

import asyncio
import logging
from contextlib import suppress

from fairnotice.cli.serve_config import ServeConfig
from fairnotice.control.not_ready import not_ready
from fairnotice.control.running import Entrance
from fairnotice.errors import Unavailable
from fairnotice.stores.opening import is_shared, open_store
from fairnotice.stores.store import Store
from fairnotice.systemd import tell_systemd, waiting

log = logging.getLogger(__name__)

TRY_EVERY_SECONDS = 1.0
# A try takes up to five; systemd is told again with each.
PATIENCE_SECONDS = 60.0


async def opened(config: ServeConfig, entrance: Entrance, ended: asyncio.Event) -> Store | None:
    """The store, made or migrated where need be; None where all is ended before it is there.

    A wrong password is waited for too: from outside it is a database that is being restored.
    """
    try:
        return await asyncio.to_thread(open_store, config.store_url())
    except Unavailable as error:
        if not is_shared(config.store_url()):
            # Nobody but a person changes that.
            raise
        log.error("waits for the database: %s", error)  # noqa: TRY400 - no fault of ours
    async with not_ready(config.control_place, entrance, "the control plane waits for its store"):
        while not ended.is_set():
            tell_systemd(f"{waiting(PATIENCE_SECONDS)}\nSTATUS=Waits for the database")
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), TRY_EVERY_SECONDS)
            with suppress(Unavailable):
                # Its URL is read anew: it may be that which is mended.
                store = await asyncio.to_thread(open_store, config.store_url())
                log.warning("the database is there")
                return store
    return None
