"""Real sockets, on uvloop: documented command lines, unix sockets, limits, those who misbehave."""

import asyncio
import contextlib
import json
import os
import resource
import shlex
import shutil
import socket
import struct
import sys
import urllib.request

import pytest

from fairnotice.metadata.worker import Limits
from fairnotice.model import Document
from tests.engine.story import DB, WEB
from tests.metadata.sockets import ask, endpoint, last, on_sockets, run, talk
from tests.metadata.wireless import PATH, TARGET, approval, get, post, read_answers, start_requests
from tests.waiting import soon
from tests.wire.documents import event

needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None and "CI" not in os.environ, reason="curl is not installed"
)

# Azure's documentation, word for word.
AZURE_GET = (
    "curl -H Metadata:true http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
)
AZURE_POST = (
    "curl -H Metadata:true -X POST -d "
    """'{"StartRequests": [{"EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5"}]}' """
    "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
)


def at(port, line):
    """A documented line, sent to this endpoint instead."""
    return line.replace("169.254.169.254", f"127.0.0.1:{port}")


# ---- Clients ----


@needs_curl
def test_the_curl_lines_of_the_documentation():
    """Read, approve, read again."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            code, printed = await run(at(served.port, AZURE_GET))
            assert code == 0
            (shown,) = json.loads(printed)["Events"]
            line = AZURE_POST.replace("f020ba2e-3bc0-4c40-a10b-86575a9eabd5", shown["EventId"])
            assert await run(at(served.port, line)) == (0, b"")
            _, printed = await run(at(served.port, AZURE_GET))
            assert json.loads(printed)["Events"][0]["EventStatus"] == "Started"

    on_sockets(story)


@needs_curl
def test_a_client_behind_a_proxy_setting():
    """`http_proxy` in a VM's environment points at us: the absolute form is understood."""

    async def story():
        async with endpoint() as served:
            code, printed = await run(AZURE_GET, http_proxy=f"http://127.0.0.1:{served.port}")
            assert (code, json.loads(printed)["Events"]) == (0, [])

    on_sockets(story)


@needs_curl
def test_curl_on_a_unix_socket_per_vm(tmp_path):
    """Each socket is its VM's, and shows its scope."""

    async def story():
        async with endpoint() as served:
            for vm in ("web-0", "db"):
                served.stage.restart_vm(vm)
                served.server.listen_unix(str(tmp_path / vm), vm)
            for vm in ("web-0", "db", "web-0"):
                line = AZURE_GET.replace("curl", f"curl --unix-socket {tmp_path / vm}")
                _, printed = await run(line)
                assert json.loads(printed)["Events"][0]["Resources"] == [vm]

    on_sockets(story)


def test_a_unix_socket_takes_the_place_of_one_left_behind(tmp_path):
    """A process that died left its socket; the next one listens all the same."""

    async def story():
        path = str(tmp_path / "db")
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(path)
        async with endpoint() as served:
            served.server.listen_unix(path, "db")
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(last())
            assert read_answers(await reader.read())[0].status == 200
            writer.close()

    on_sockets(story)


def test_a_unix_socket_that_is_served_is_not_taken_over(tmp_path):
    """As for a port that is in use: the one who serves it serves on."""

    async def story():
        path = str(tmp_path / "db")
        async with endpoint() as served:
            served.server.listen_unix(path, "db")
            with pytest.raises(OSError, match="in use"):
                served.server.listen_unix(path, "web-0")
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(last())
            assert read_answers(await reader.read())[0].status == 200
            writer.close()

    on_sockets(story)


def test_a_file_is_not_taken_for_a_socket(tmp_path):
    """Whatever else is at that path is left as it is."""

    async def story():
        path = tmp_path / "db"
        path.write_text("precious")
        async with endpoint() as served:
            with pytest.raises(OSError, match="in use"):
                served.server.listen_unix(str(path), "db")
        assert path.read_text() == "precious"

    on_sockets(story)


def test_whoever_closes_his_direction_during_a_wait_is_answered():
    """`nc -N` with a wait: he may be gone, so the wait ends, with a 304."""

    async def story():
        async with endpoint() as served:
            etag = (await ask(served.port, last())).etag
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(get(f"If-None-Match: {etag}", "Prefer: wait=60"))
            await soon(lambda: served.worker.held_count == 1)
            writer.write_eof()
            answers = read_answers(await asyncio.wait_for(reader.read(), 10))
            writer.close()
            assert [answer.status for answer in answers] == [304]

    on_sockets(story)


def test_pythons_own_client():
    """What urllib does: it sends an approval's head and body apart, one right behind the other."""

    def send(port, body):
        url = f"http://127.0.0.1:{port}{TARGET}"
        asked = urllib.request.Request(url, data=body, headers={"Metadata": "true"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=30) as answer:
            return answer.status

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            body = start_requests(served.stage.only(WEB).id)
            for _ in range(200):
                assert await asyncio.to_thread(send, served.port, body) == 200

    on_sockets(story)


def test_a_request_in_two_packets_is_one_request():
    """The second may arrive at any moment while the connection is being taken."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            raw = approval(served.stage.only(WEB).id)
            head, _, body = raw.partition(b"\r\n\r\n")
            head += b"\r\nConnection: close\r\n\r\n"
            statuses = []
            for turn in range(400):
                with socket.socket() as vm:
                    vm.settimeout(0)
                    vm.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(vm, ("127.0.0.1", served.port))
                    vm.send(head)
                    for _ in range(turn % 8):
                        await asyncio.sleep(0)
                    vm.send(body)
                    data = b""
                    while piece := await loop.sock_recv(vm, 65_536):
                        data += piece
                statuses += [answer.status for answer in read_answers(data)]
            assert statuses == [200] * 400

    on_sockets(story)


def test_a_vm_with_two_kinds_of_address():
    """The same VM on IPv4 and on IPv6."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            port = served.listen(host="::1")
            reader, writer = await asyncio.open_connection("::1", port)
            writer.write(last())
            (answer,) = read_answers(await reader.read())
            writer.close()
            assert answer.body == (await ask(served.port, last())).body

    on_sockets(story)


def test_one_socket_for_both_kinds_of_address():
    """`::` takes IPv4 as well: the VM is the same, the first time and when it was seen before."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            port = served.listen(host="::")
            bodies = {(await ask(port, last())).body for _ in range(3)}
            assert bodies == {(await ask(served.port, last())).body}
            stranger = await ask(port, last(), source="127.0.0.99")
            assert "known at 127.0.0.99" in stranger.error

    on_sockets(story)


def test_each_address_sees_its_own_scope():
    """First time and second time, on connections that last one poll."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            served.stage.restart_vm("db")
            for _ in range(3):
                for source, scope in (("127.0.0.1", WEB), ("127.0.0.2", DB), ("127.0.0.3", WEB)):
                    answer = await ask(served.port, last(), source=source)
                    (shown,) = answer.events
                    assert served.stage.event(shown["EventId"]).scope == scope
                stranger = await ask(served.port, last(), source="127.0.0.99")
                assert stranger.status == 403
                assert "127.0.0.99" in stranger.error

    on_sockets(story)


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_large_document_arrives_whole(seen_before):
    """Eight megabytes to a client that reads slowly, on a connection that lasts one poll."""

    async def story():
        async with endpoint() as served:
            if seen_before:
                await ask(served.port, last())
            names = tuple(f"web-{n:060}" for n in range(120_000))
            large = Document(7, (event(resources=names),))
            served.worker.board.publish(served.stage.scope(WEB), large)
            with socket.socket() as vm:
                vm.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                vm.settimeout(0)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(vm, ("127.0.0.1", served.port))
                vm.send(last())
                await asyncio.sleep(0.2)
                data = bytearray()
                while piece := await loop.sock_recv(vm, 2**20):
                    data += piece
            (answer,) = read_answers(bytes(data))
            assert len(answer.events[0]["Resources"]) == 120_000

    on_sockets(story)


# ---- Limits ----


def test_a_413_reaches_also_a_client_that_goes_on_sending():
    """It writes all of its body before it reads: the answer is not lost by a reset."""

    async def story():
        async with endpoint() as served:
            for size in (70_000, 300_000, 1_000_000) * 5:
                data = await talk(served.port, post(b" " * size))
                assert [answer.status for answer in read_answers(data)] == [413]

    on_sockets(story)


def test_an_oversized_head_is_431_or_the_end():
    """A head of a megabyte is answered or cut off, and the next client is served."""

    async def story():
        async with endpoint() as served:
            for size in (17_000, 100_000, 1_000_000) * 3:
                data = b""
                with contextlib.suppress(ConnectionError):
                    data = await talk(served.port, get("X: " + "y" * size))
                assert [answer.status for answer in read_answers(data)] in ([], [431])
            assert (await ask(served.port, last())).status == 200

    on_sockets(story)


@needs_curl
def test_curl_is_told_that_its_body_is_too_large(tmp_path):
    """With and without `Expect: 100-continue`."""

    async def story():
        body = tmp_path / "body"
        body.write_bytes(b" " * 3_000_000)
        async with endpoint() as served:
            for expect in ("", "-H Expect: "):
                line = f"curl -s -o /dev/null -w %{{http_code}} {expect} -H Metadata:true"
                line += f" --data-binary @{body} http://127.0.0.1:{served.port}{TARGET}"
                assert (await run(line))[1] == b"413"

    on_sockets(story)


def test_an_unfinished_request_is_408_and_an_idle_connection_is_closed():
    """With small limits; also a connection that never says a word."""

    async def story():
        limits = Limits(request_seconds_max=0.2, idle_seconds_max=0.2)
        async with endpoint(limits=limits) as served:
            half, idle, silent = await asyncio.gather(
                talk(served.port, get()[:50]), talk(served.port, get()), talk(served.port)
            )
            assert [answer.status for answer in read_answers(half)] == [408]
            assert [answer.status for answer in read_answers(idle)] == [200]
            assert silent == b""

    on_sockets(story)


def test_whoever_resets_his_connection_hurts_nobody():
    """In the middle of a request, behind one, and before any."""

    async def story():
        async with endpoint() as served:
            for raw in (b"", get()[:30], get(), last(), approval("x")[:-3]) * 20:
                with socket.socket() as vm:
                    vm.connect(("127.0.0.1", served.port))
                    vm.send(raw)
                    vm.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await asyncio.sleep(0)
            assert (await ask(served.port, last())).status == 200
            await asyncio.sleep(0.2)

    on_sockets(story)


@pytest.mark.parametrize("what", ["poll", "first poll", "approval"])
def test_whoever_has_said_all_he_has_to_say_is_answered(what):
    """`nc -N` and the like close their own direction right behind the request."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            if what == "first poll":
                served.stage.advance(hours=30)
                assert not served.stage.scope(DB).enabled
            raw = approval(served.stage.only(WEB).id) if what == "approval" else get()
            source = "127.0.0.2" if what == "first poll" else "127.0.0.1"
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, local_addr=(source, 0)
            )
            writer.write(raw)
            writer.write_eof()
            answers = read_answers(await reader.read())
            writer.close()
            assert [answer.status for answer in answers] == [200]

    on_sockets(story)


def test_when_the_endpoint_ends_so_do_its_connections():
    """Idle, waiting and held ones; whoever connects then is refused."""

    async def story():
        async with endpoint() as served:
            etag = (await ask(served.port, last())).etag
            held = get(f"If-None-Match: {etag}", "Prefer: wait=60")
            raws = (get(), held, get()[:9], held + get()[:9], held + get())
            some = [asyncio.create_task(talk(served.port, raw)) for raw in raws]
            await soon(lambda: len(served.worker.connections) == len(raws))
            await soon(lambda: served.worker.held_count == 3)
            served.server.close()
            await asyncio.gather(*some)
            with pytest.raises(OSError, match="onnect"):
                await talk(served.port, get())

    on_sockets(story)


# ---- Many ----


@contextlib.contextmanager
def descriptors(wanted):
    """As many open files as wanted; skipped where the system does not allow it, never in CI."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), max(wanted, hard)))
    except (ValueError, OSError):
        assert "CI" not in os.environ, f"{wanted} open files are needed, {hard} allowed"
        pytest.skip(f"needs {wanted} open files, {hard} are allowed")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_that_send_a_byte_a_second_do_not_stall_the_others():
    """For three seconds; each of a hundred polls is answered, and the slow ones are still there."""

    async def story():
        async with endpoint(limits=Limits(connections_per_address_max=1_000)) as served:
            slow = []
            for _ in range(1_000):
                _, writer = await asyncio.open_connection("127.0.0.1", served.port)
                slow.append(writer)
            for byte in b"GET":
                for writer in slow:
                    writer.write(bytes([byte]))
                for _ in range(33):
                    answer = await asyncio.wait_for(ask(served.port, last(), source="127.0.0.2"), 5)
                    assert answer.status == 200
                await asyncio.sleep(1)
            assert len(served.worker.connections) == 1_000
            for writer in slow:
                writer.close()

    on_sockets(story)


def test_ten_thousand_held_answers_are_woken_by_one_change():
    """Each gets the new document, all alike but for the Date, and none is held any more."""
    wanted = 10_000

    async def story():
        limits = Limits(connections_per_address_max=wanted)
        async with endpoint(limits=limits) as served:
            etag = (await ask(served.port, last())).etag
            line = f"{sys.executable} -m tests.metadata.waiting_crowd {served.port} {wanted}"
            crowd = asyncio.create_task(run(f"{line} {shlex.quote(etag)}"))
            await soon(lambda: served.worker.held_count == wanted or crowd.done())
            served.stage.restart_vm("web-0")
            assert await asyncio.wait_for(crowd, 30) == (0, b"10000 1\n")
            assert served.worker.held_count == 0

    with descriptors(wanted + 500):
        on_sockets(story)


def test_hundreds_of_polls_at_once_on_connections_of_their_own():
    """What most clients do; one by one and all together, the paths of the endpoint agree."""

    async def story():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            one = await ask(served.port, last())
            many = await asyncio.gather(*(ask(served.port, last()) for _ in range(500)))
            assert {answer.body for answer in many} == {one.body}
            assert {answer.headers["connection"] for answer in many} == {"close"}
            split = await ask(served.port, last()[:20], last()[20:])
            assert split.body == one.body
            old = await ask(served.port, get(http="HTTP/1.0", version="2017-03-01"))
            assert old.events[0]["Resources"] == ["_web-0"]
            assert (await ask(served.port, last(), source="127.0.0.2")).events == []
            nowhere = last().replace(PATH.encode(), b"/nowhere")
            assert (await ask(served.port, nowhere)).status == 404

    on_sockets(story)
