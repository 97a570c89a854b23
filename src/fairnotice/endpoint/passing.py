"""Asking the control planes, in turn: whichever answers is asked first the next time."""

import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import quote

from fairnotice.control.peers import Peer, PeerAnswer
from fairnotice.errors import Unavailable, UsageError

log = logging.getLogger(__name__)

# All that is asked of one control plane before the next one is.
ASK_SECONDS = 3.0
# A feed that says nothing for so long is dead: it beats every ten seconds.
IDLE_SECONDS = 25.0
_OK = 200
_UNAUTHENTICATED, _FORBIDDEN = 401, 403
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


def _none() -> None:
    """Nobody is asked who he is."""


class Passing:
    """The control planes of one node's endpoint."""

    def __init__(
        self,
        node: str,
        control_planes: Sequence[str],
        *,
        token: Callable[[], str | None] = _none,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._node = node
        self._path = f"/v1/endpoints/{quote(node, safe='')}"
        # Read anew where it counts no longer: a token is renewed in its file, without a restart.
        self._read_token = token
        self._token = token()
        self._peers = [Peer(url, token=self._token, trust=trust) for url in control_planes]
        # How often each deed failed, for the metrics.
        self.failed_count = 0

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def first(self) -> Peer:
        """The one that is asked first."""
        return self._peers[0]

    def turn(self) -> None:
        """Ask another one first from now on."""
        self._peers.append(self._peers.pop(0))

    def feed(self, after: int) -> AsyncIterator[bytes]:
        """The node's feed from the one that is asked first, once it has read up to here."""
        return self.first.lines(f"{self._path}/feed?after={after}", idle_seconds=IDLE_SECONDS)

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

    async def renew(self, trust: ssl.SSLContext | None) -> None:
        """Take the token that is there now, and believe whom this vouches for, if anybody."""
        if self._has_new_token():
            log.info("the token is another one now")
        if trust is not None:
            for peer in self._peers:
                await peer.trust(trust)

    def _has_new_token(self) -> bool:
        """Whether there is another token than the one that is said; it is said from now on."""
        try:
            token = self._read_token()
        except UsageError as error:
            log.warning("the token stays as it was: %s", error)
            return False
        if token == self._token:
            return False
        self._token = token
        for peer in self._peers:
            peer.use(token)
        return True

    async def _said(self, peer: Peer, what: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._asked(peer, what, body)
        if answer.status == _UNAUTHENTICATED and self._has_new_token():
            log.warning("the token counts no longer, and there is another one")
            answer = await self._asked(peer, what, body)
        if answer.status != _OK:
            sentence = f"{peer.url} answered {answer.status} to {what}: {_detail(answer)}"
            if answer.status == _FORBIDDEN and what == "join":
                sentence += f" Look whether its token is for {self._node} (fairnotice token list)."
            if answer.status in _SAID_BY_ALL:
                raise Refused(sentence, answer.status)
            raise Unavailable(sentence)
        found = _parsed(answer)
        if found is None:
            raise Unavailable(f"{peer.url} answered {what} with no JSON object")
        return found

    async def _asked(self, peer: Peer, what: str, body: dict[str, Any]) -> PeerAnswer:
        # Whatever an endpoint says may be said twice.
        return await peer.ask(
            "POST",
            f"{self._path}/{what}",
            headers=_JSON,
            body=json.dumps(body).encode("utf-8"),
            seconds=ASK_SECONDS,
            repeatable=True,
        )

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
