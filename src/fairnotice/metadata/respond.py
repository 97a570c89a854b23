"""From a request and who asks to the answer. It reads the board and changes nothing."""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from fairnotice.metadata.board import Answer, Caller, is_known
from fairnotice.metadata.replies import JSON, OK, TEXT, Reply, reply
from fairnotice.metadata.request import Request, Target
from fairnotice.model import Node, Scope, Vm
from fairnotice.wire import error_bodies, instance, versions

VERSIONS = reply(200, versions.versions_document())
NOT_READY = reply(503, error_bodies.NOT_READY, headers=b"Retry-After: 1\r\n")


class Later(Enum):
    """What has to happen before a request can be answered."""

    ENABLE = "the scope is enabled first"
    HOLD = "the document changes, or the wait is over"
    APPROVE = "the approval is durable"
    IDENTIFY = "the token of an identity is signed"


class About(NamedTuple):
    """A VM and where it is: what an instance document says follows from it."""

    vm: Vm
    node: Node | None
    scope: Scope
    subscription_id: str
    location: str


# Takes a VM's name. The board holds no rows: whoever feeds it is asked for them.
Describe = Callable[[str], About | None]


def refuse(request: Request, retry_after_seconds: int) -> Reply | None:
    """What is wrong with the request of a VM that is known; 0 seconds where it is not too often."""
    if request.early is not None:
        return request.early
    if retry_after_seconds and not request.post:
        return too_many(retry_after_seconds)
    return request.late


def respond(request: Request, caller: Caller, answer: Answer, describe: Describe) -> Reply | Later:
    """The answer to a request with which nothing is wrong, where `answer` is the document."""
    if request.target is Target.EVENTS:
        return _events(request, caller, answer)
    if request.target is Target.VERSIONS:
        return VERSIONS
    if request.target is Target.IDENTITY:
        return Later.IDENTIFY
    return _instance(request, describe(caller.name))


@lru_cache
def too_many(retry_after_seconds: int) -> Reply:
    """The 429 of a VM that asks too often."""
    return reply(429, error_bodies.TOO_MANY, headers=b"Retry-After: %d\r\n" % retry_after_seconds)


def _events(request: Request, caller: Caller, answer: Answer) -> Reply | Later:
    if request.post:
        return Later.APPROVE
    if not caller.page.enabled:
        return Later.ENABLE
    if not is_known(request.etags, answer):
        return answer.full
    return Later.HOLD if request.wait_seconds else answer.unchanged


def _instance(request: Request, about: About | None) -> Reply:
    if about is None:
        return NOT_READY
    facts = instance.facts_of(
        about.vm,
        about.node,
        about.scope,
        subscription_id=about.subscription_id,
        location=about.location,
    )
    status, body = instance.answer(facts, request.path, request.api_version, text=request.text)
    return reply(status, body, content_type=TEXT if request.text and status == OK else JSON)
