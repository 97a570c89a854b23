"""Asking the control planes, in turn: whichever answers is asked first the next time."""

import json
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

from fairnotice.control.peers import Peer, PeerAnswer
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# All that is asked of one control plane before the next one is.
ASK_SECONDS = 3.0
# A feed that says nothing for so long is dead: it beats every ten seconds.
IDLE_SECONDS = 25.0
_OK = 200
# What another control plane would say as well.
_SAID_BY_ALL = (400, 401, 403, 404, 409, 413, 422)
# It will never be taken as it is.
SENSELESS = (400, 413, 422)
_JSON = (("Content-Type", "application/json"),)
_DETAIL_CHARACTERS = 300


class Refused(Unavailable):
    """A control plane has answered, and the answer is no."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Passing:
    """The control planes of one node's endpoint."""

    def __init__(
        self,
        node: str,
        control_planes: Sequence[str],
        *,
        token: str | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._path = f"/v1/endpoints/{quote(node, safe='')}"
        self._peers = [Peer(url, token=token, trust=trust) for url in control_planes]
        # How often each deed failed, for the metrics.
        self.failed_count = 0

    @property
    def first(self) -> Peer:
        """The one that is asked first."""
        return self._peers[0]

    def turn(self) -> None:
        """Ask another one first from now on."""
        self._peers.append(self._peers.pop(0))

    def feed(self) -> AsyncIterator[bytes]:
        """The node's feed from the one that is asked first."""
        return self.first.lines(f"{self._path}/feed", idle_seconds=IDLE_SECONDS)

    async def say(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """Say this to one of them; its answer. Unavailable where none takes it."""
        errors = []
        for peer in tuple(self._peers):
            try:
                answer = await self._said(peer, what, body)
            except Refused:
                self.failed_count += 1
                raise
            except Unavailable as error:
                errors.append(str(error))
            else:
                return answer
        self.failed_count += 1
        raise Unavailable("; ".join(errors))

    async def _said(self, peer: Peer, what: str, body: dict[str, Any]) -> dict[str, Any]:
        # Whatever an endpoint says may be said twice.
        answer = await peer.ask(
            "POST",
            f"{self._path}/{what}",
            headers=_JSON,
            body=json.dumps(body).encode("utf-8"),
            seconds=ASK_SECONDS,
            repeatable=True,
        )
        if answer.status != _OK:
            sentence = f"{peer.url} answered {answer.status} to {what}: {_detail(answer)}"
            if answer.status in _SAID_BY_ALL:
                raise Refused(sentence, answer.status)
            raise Unavailable(sentence)
        found = _parsed(answer)
        if found is None:
            raise Unavailable(f"{peer.url} answered {what} with no JSON object")
        return found

    async def close(self) -> None:
        """Keep no connection."""
        for peer in self._peers:
            await peer.close()


def _parsed(answer: PeerAnswer) -> dict[str, Any] | None:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _detail(answer: PeerAnswer) -> str:
    """What a problem says, or the beginning of whatever came instead."""
    detail = (_parsed(answer) or {}).get("detail")
    text = detail if isinstance(detail, str) else answer.body.decode("utf-8", "replace")
    return text[:_DETAIL_CHARACTERS]
