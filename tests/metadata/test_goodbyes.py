"""Real sockets: those who hang up, those who come when there is no room, and who is counted."""

import asyncio
import resource
import socket

import pytest

from fairnotice.metadata.rate import rate_of
from fairnotice.model import Document
from tests.engine.story import WEB
from tests.metadata.sockets import ask, endpoint, last, on_sockets
from tests.metadata.wireless import get, read_answers
from tests.waiting import soon
from tests.wire.documents import event


def test_whoever_hangs_up_while_his_answer_is_held_is_let_go():
    """Not after the wait, but when he goes."""

    async def story():
        async with endpoint() as served:
            etag = (await ask(served.port, last())).etag
            held = get(f"If-None-Match: {etag}", "Prefer: wait=60")
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(held)
            await soon(lambda: served.worker.held_count == 1)
            writer.close()
            await soon(lambda: served.worker.held_count == 0)

    on_sockets(story)


@pytest.mark.parametrize("events", [0, 40])
def test_a_poll_on_a_connection_of_its_own_counts_once(events):
    """Ten at once are within the rate, however large the document is; the eleventh is not."""

    async def story():
        async with endpoint(rate_limit=rate_of(per_second=0.1, burst=10)) as served:
            many = tuple(event(id=f"{number:036}") for number in range(events))
            served.worker.board.publish(served.stage.scope(WEB), Document(7, many))
            statuses = [(await ask(served.port, last())).status for _ in range(11)]
            assert statuses == [200] * 10 + [429]
            assert sum(served.worker.polls) + sum(served.worker.answers.values()) == 11

    on_sockets(story)


def test_out_of_descriptors_is_not_the_end():
    """Whoever is connected is served; whoever waits at the door is let in when there is room."""

    async def story():
        async with endpoint() as served:
            await ask(served.port, last())
            loop = asyncio.get_running_loop()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(get())
            assert (await reader.readuntil(b"]}")).startswith(b"HTTP/1.1 200 ")
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            waiting = [socket.socket() for _ in range(20)]
            highest = max(vm.fileno() for vm in waiting)
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            try:
                for vm in waiting:
                    vm.connect(("127.0.0.1", served.port))
                    vm.settimeout(0)
                    vm.send(last())
                writer.write(last())
                assert read_answers(await reader.read())[0].status == 200
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for vm in waiting:
                data = await loop.sock_recv(vm, 65_536)
                vm.close()
                assert data.startswith(b"HTTP/1.1 200 ")
            writer.close()

    on_sockets(story)
