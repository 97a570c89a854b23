"""The addresses of tokens and of the audit, which are the admin's."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec

from fairnotice.control import tokens
from fairnotice.control.bodies import Nothing
from fairnotice.control.limits import must_be_there
from fairnotice.control.misfits import nearest
from fairnotice.control.route import Call, Memory, Paging, Route, page_of, part
from fairnotice.control.shapes import Body, Shape
from fairnotice.errors import UnknownName
from fairnotice.stores import access
from fairnotice.words import TokenRole

NUMBER_DIGITS = r"^[0-9]{0,18}$"


class Token(Shape):
    """A token, without its secret, which nobody knows but who was given it."""

    id: str
    name: str
    role: TokenRole
    created_at: datetime
    created_by: str
    scopes: list[str]
    resource_groups: list[str]
    node: str | None
    vm: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    # It is the identity of a VM that is gone, and counts no longer.
    vm_gone: bool


class CreateToken(Body):
    """A new token. Its name is given once, and says who asked."""

    name: Annotated[
        str, msgspec.Meta(pattern=tokens.NAME_PATTERN, description=tokens.NAME_IN_WORDS)
    ]
    role: TokenRole
    scopes: list[str] = msgspec.field(default_factory=list)
    resource_groups: list[str] = msgspec.field(default_factory=list)
    node: str | None = None
    # The VM whose managed identity it is to be. Then there is no secret.
    vm: str | None = None
    expires_days: Annotated[float, msgspec.Meta(gt=0, le=tokens.EXPIRES_DAYS_MAX)] | None = None


class TokenCreated(Shape):
    """A new token and its secret, which is told this once; empty where it is a VM's identity."""

    token: Token
    secret: str
    warnings: list[str]


class Audited(Shape):
    """Somebody asked for something."""

    number: str
    at: datetime
    token: str | None
    name: str
    source: str
    method: str
    path: str
    status: int
    operations: tuple[str, ...]
    left_out: int
    lapsed: str


class AuditPaging(Body):
    """Which part of the audit: at most so many lines, older than this one, of whom, from when."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    after: Annotated[str, msgspec.Meta(pattern=NUMBER_DIGITS)] = ""
    who: str | None = None
    since: datetime | None = None


def _shown(call: Call, token: access.Token) -> Token:
    gone = call.service.auth.tokens.has_outlived_its_vm(token)
    return msgspec.convert({**tokens.shown(token), "vm_gone": gone}, Token)


async def _list(call: Call) -> dict[str, Any]:
    found = await call.service.auth.tokens.all()
    ids = [token.id for token in found]
    after = call.query.after
    following = found[ids.index(after) + 1 :] if after in ids else found
    return part(call.query, ids, map(partial(_shown, call), following), "id")


async def _create(call: Call) -> TokenCreated:
    body: CreateToken = call.body
    fleet = call.service.fleet
    # A token for what is not there would be good for nothing, and nobody would see why.
    warnings = must_be_there(fleet, body.scopes, body.resource_groups, body.node, body.vm)
    wanted = tokens.Wanted(
        body.name,
        body.role,
        tuple(body.scopes),
        tuple(body.resource_groups),
        body.node,
        body.expires_days,
        body.vm,
        0 if body.vm is None else fleet.vms[body.vm].declared_revision,
    )
    made = await call.service.auth.tokens.add(wanted, call.who.requester.name)
    if body.vm is not None:
        warnings += tokens.of_several(made.token, await call.service.auth.tokens.of_vm(body.vm))
    return TokenCreated(_shown(call, made.token), made.text, warnings)


async def _revoke(call: Call) -> Token:
    known = await call.service.auth.tokens.all()
    token = tokens.token_named(known, call.name)
    revoked = None if token is None else await call.service.auth.tokens.revoke(token.id)
    if revoked is None:
        alike = nearest((one.name for one in known), call.name)
        raise UnknownName(f"There is no token {call.name}.", alike)
    return _shown(call, revoked)


async def _audit(call: Call) -> dict[str, Any]:
    query: AuditPaging = call.query
    found = await call.service.auth.audits.read(
        query.limit + 1,
        before=int(query.after) if query.after else None,
        who=query.who,
        since=query.since,
    )
    lines = [
        Audited(
            number=str(one.number), **{**msgspec.to_builtins(one.audited), "at": one.audited.at}
        )
        for one in found[: query.limit]
    ]
    return {"items": lines, "next": lines[-1].number if len(found) > query.limit else None}


ACCESS_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/tokens",
        "Every token there ever was, without its secret.",
        _list,
        page_of(Token),
        TokenRole.ADMIN,
        asks=Paging,
    ),
    # No key: the answer is not kept, since it holds the secret; a name is given only once anyway.
    Route(
        "POST",
        "/v1/tokens",
        "A new token; its secret is told this once.",
        _create,
        TokenCreated,
        TokenRole.ADMIN,
        CreateToken,
    ),
    Route(
        "POST",
        "/v1/tokens/{name}/revoke",
        "Let a token, by its id or name, count no longer.",
        _revoke,
        Token,
        TokenRole.ADMIN,
        Nothing,
        memory=Memory.PROCESS,
    ),
    Route(
        "GET",
        "/v1/audit",
        "Who asked for what, the newest first.",
        _audit,
        page_of(Audited),
        TokenRole.ADMIN,
        asks=AuditPaging,
    ),
)
