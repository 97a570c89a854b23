"""Starting processes, and waiting for them without a thread each.

The wrapper is a direct child in a session of its own. asyncio's subprocesses are not used for it,
because they kill their child when the loop goes away; it is meant to outlive us. It is over when
its standard output ends, which nobody but it and its short-lived tools hold.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from fairnotice.drivers.command.settings import OLDER_EPOCH_CODE, readable
from fairnotice.errors import LeadLost, Unavailable

_QUESTION_BYTES_MAX = 65_536


class Wrappers:
    """The wrappers that this process has started."""

    def __init__(self) -> None:
        # Nobody waits for these any more; they are buried when somebody passes by.
        self._abandoned: set[int] = set()

    async def run(self, words: Sequence[str], environment: Mapping[str, str]) -> str:
        """What the wrapper said last; nothing if it was killed. Canceled, it leaves it running."""
        self.bury()
        process, output = _spawn(words, environment)
        try:
            said = await _read_to_end(output)
        except BaseException:
            self._abandoned.add(process)
            raise
        finally:
            os.close(output)
        _wait(process, 0)
        return said.decode("ascii", errors="replace").strip()

    def bury(self) -> None:
        """Take note of the abandoned that have ended, so that no zombies pile up."""
        self._abandoned = {process for process in self._abandoned if not _wait(process, os.WNOHANG)}


def _spawn(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.set_blocking(theirs, True)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        process = os.posix_spawn(
            words[0],
            list(words),
            environment,
            file_actions=actions,
            setsid=True,
            # Python ignores it, and what is ignored is inherited.
            setsigdef=[signal.SIGPIPE],
        )
    except OSError as error:
        os.close(ours)
        raise Unavailable(f"Cannot start {words[0]}: {error.strerror}.") from error
    finally:
        os.close(theirs)
    return process, ours


async def _read_to_end(file: int) -> bytes:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bytes] = loop.create_future()
    pieces: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(file, 4096)
            pieces.append(piece)
            if not piece and not ended.done():
                ended.set_result(b"".join(pieces))

    loop.add_reader(file, read)
    try:
        return await ended
    finally:
        loop.remove_reader(file)


def _wait(process: int, options: int) -> bool:
    """Whether it has ended and is buried."""
    try:
        return os.waitpid(process, options)[0] != 0
    except ChildProcessError:
        return True


async def ask(
    name: str, command: Sequence[str], environment: Mapping[str, str], limit_seconds: float
) -> str:
    """What a command that answers a question has printed; Unavailable where it has no answer."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"The {name} command cannot be run: {error}.") from error
    try:
        async with asyncio.timeout(limit_seconds):
            output, complaints = await process.communicate()
    except TimeoutError as error:
        raise Unavailable(f"The {name} command took over {limit_seconds:g} s.") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode == OLDER_EPOCH_CODE:
        raise LeadLost(f"The {name} command has seen a later epoch.")
    if process.returncode != 0:
        said = readable(complaints or output, _QUESTION_BYTES_MAX)
        raise Unavailable(f"The {name} command ended with {process.returncode}: {said}")
    return output.decode("utf-8", errors="replace")
