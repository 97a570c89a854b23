"""The addresses of webhooks. Whoever makes one has this service connect where he says: an admin."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from fairnotice.control.bodies import Nothing
from fairnotice.control.limits import must_be_there
from fairnotice.control.route import Call, Memory, Paging, Route, page_of, part
from fairnotice.control.shapes import Body, Shape
from fairnotice.deliveries import retries, webhooks
from fairnotice.deliveries.sending import URL_CHARACTERS_MAX, shown
from fairnotice.stores.webhooks import Queued
from fairnotice.words import EventSchema, EventStatus, EventType, TokenRole

NUMBER_DIGITS = r"^[0-9]{0,18}$"


class Webhook(Shape):
    """Somebody outside who is told of events; of his URL without what may be a secret in it."""

    id: str
    name: str
    url: str
    schema: EventSchema
    created_at: datetime
    created_by: str
    # `awaiting validation` until the receiver has agreed; then `delivering`, or `retrying` while
    # what waits longest was tried and not taken.
    state: str
    statuses: list[EventStatus]
    types: list[EventType]
    scopes: list[str]
    resource_groups: list[str]
    signed: bool
    allow_http: bool
    attempts_max: int
    keep_minutes: int
    # Up to which revision of the journal his deliveries are queued.
    revision: int
    # Of one that awaits validation: what the next 1,000 lines of the journal have for it.
    waiting: int
    dead_letters: int
    # Of the delivery that waits longest: what came of its last try, and when the next is.
    error: str
    next_at: datetime | None


class CreateWebhook(Body):
    """A new webhook. What is left out of statuses, types, scopes and groups means all of them."""

    name: Annotated[
        str, msgspec.Meta(pattern=webhooks.NAME_PATTERN, description=webhooks.NAME_IN_WORDS)
    ]
    url: Annotated[str, msgspec.Meta(max_length=URL_CHARACTERS_MAX)]
    schema: EventSchema = EventSchema.CLOUDEVENTS
    statuses: list[EventStatus] = msgspec.field(default_factory=list)
    types: list[EventType] = msgspec.field(default_factory=list)
    scopes: list[str] = msgspec.field(default_factory=list)
    resource_groups: list[str] = msgspec.field(default_factory=list)
    signed: bool = False
    allow_http: bool = False
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=retries.ATTEMPTS_MAX)] = retries.ATTEMPTS_MAX
    keep_minutes: Annotated[int, msgspec.Meta(ge=1, le=retries.KEEP_MINUTES_MAX)] = (
        retries.KEEP_MINUTES_MAX
    )


class WebhookCreated(Shape):
    """A new webhook; and where it signs, the secret, which is told this once."""

    webhook: Webhook
    secret: str | None
    warnings: list[str]


class WebhookTested(Shape):
    """What a receiver answered to a test; 0 where he did not answer."""

    taken: bool
    status: int
    error: str


class DeadLetter(Shape):
    """A delivery that was given up."""

    number: str
    id: str
    event: str
    status: EventStatus
    queued_at: datetime
    dead_at: datetime | None
    attempts: int
    error: str
    # What was to be told.
    content: Any


class LetterPaging(Body):
    """Which part of the dead letters: at most so many, after the one of this number."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    after: Annotated[str, msgspec.Meta(pattern=NUMBER_DIGITS)] = ""


class Redeliver(Body):
    """Which dead letters are tried again, by id; all of them where none is named."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1_000)] = msgspec.field(default_factory=list)


class Redelivered(Shape):
    """How many dead letters wait again. A receiver that refuses one has it dead once more."""

    count: int


def _shown(standing: webhooks.Standing) -> Webhook:
    one = standing.webhook
    return Webhook(
        id=one.id,
        name=one.name,
        url=shown(one.url),
        schema=one.schema,
        created_at=one.created_at,
        created_by=one.created_by,
        state=_state(standing),
        statuses=list(one.statuses),
        types=list(one.types),
        scopes=list(one.scopes),
        resource_groups=list(one.resource_groups),
        signed=bool(one.secret),
        allow_http=one.allow_http,
        attempts_max=one.attempts_max,
        keep_minutes=one.keep_minutes,
        revision=standing.cursor,
        waiting=standing.waiting_count,
        dead_letters=standing.dead_count,
        error=standing.error,
        next_at=standing.next_at,
    )


def _state(standing: webhooks.Standing) -> str:
    if standing.webhook.validation_code:
        return "awaiting validation"
    return "retrying" if standing.error else "delivering"


async def _list(call: Call) -> dict[str, Any]:
    found = await call.service.webhooks.all()
    names = [one.webhook.name for one in found]
    after = call.query.after
    following = found[names.index(after) + 1 :] if after in names else found
    standings = [await call.service.webhooks.standing(one) for one in following]
    return part(call.query, names, map(_shown, standings), "name")


async def _one(call: Call) -> Webhook:
    found = await call.service.webhooks.named(call.name)
    return _shown(await call.service.webhooks.standing(found))


async def _create(call: Call) -> WebhookCreated:
    body: CreateWebhook = call.body
    # A filter for what is not there would let nothing through, and nobody would see why.
    warnings = must_be_there(call.service.fleet, body.scopes, body.resource_groups, None)
    wanted = webhooks.Wanted(
        body.name,
        body.url,
        body.schema,
        statuses=tuple(body.statuses),
        types=tuple(body.types),
        scopes=tuple(body.scopes),
        resource_groups=tuple(body.resource_groups),
        signed=body.signed,
        allow_http=body.allow_http,
        attempts_max=body.attempts_max,
        keep_minutes=body.keep_minutes,
    )
    made = await call.service.webhooks.add(wanted, call.who.requester.name)
    found = await call.service.webhooks.named(made.id)
    standing = await call.service.webhooks.standing(found)
    if made.validation_code:
        warnings.append("Nothing is told before its validationUrl was opened.")
    return WebhookCreated(_shown(standing), made.secret or None, warnings)


async def _delete(call: Call) -> Webhook:
    found = await call.service.webhooks.named(call.name)
    standing = await call.service.webhooks.standing(found)
    await call.service.webhooks.remove(found.webhook.id)
    return _shown(standing)


async def _test(call: Call) -> WebhookTested:
    tested = await call.service.webhooks.test(call.name)
    return WebhookTested(not tested.error, tested.status, tested.error)


async def _dead_letters(call: Call) -> dict[str, Any]:
    query: LetterPaging = call.query
    after = int(query.after) if query.after else 0
    found = await call.service.webhooks.dead_letters(call.name, query.limit + 1, after)
    letters = [_letter(one) for one in found[: query.limit]]
    return {"items": letters, "next": letters[-1].number if len(found) > query.limit else None}


def _letter(queued: Queued) -> DeadLetter:
    one = queued.delivery
    return DeadLetter(
        number=str(queued.number),
        id=one.id,
        event=one.event,
        status=one.status,
        queued_at=one.queued_at,
        dead_at=one.dead_at,
        attempts=one.attempts,
        error=one.error,
        content=msgspec.json.decode(one.content),
    )


async def _redeliver(call: Call) -> Redelivered:
    count = await call.service.webhooks.redeliver(call.name, tuple(call.body.ids))
    return Redelivered(count)


WEBHOOK_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/webhooks",
        "Every webhook, and how it stands with it.",
        _list,
        page_of(Webhook),
        TokenRole.READER,
        asks=Paging,
    ),
    # No key: the answer is not kept, since it may hold a secret; a name is taken anyway.
    Route(
        "POST",
        "/v1/webhooks",
        "A new webhook, once its receiver has agreed.",
        _create,
        WebhookCreated,
        TokenRole.ADMIN,
        CreateWebhook,
    ),
    Route(
        "GET", "/v1/webhooks/{name}", "One webhook, by name or id.", _one, Webhook, TokenRole.READER
    ),
    Route(
        "DELETE",
        "/v1/webhooks/{name}",
        "Tell a webhook nothing any more, and forget what waits for it.",
        _delete,
        Webhook,
        TokenRole.ADMIN,
    ),
    Route(
        "POST",
        "/v1/webhooks/{name}/test",
        "Send a test to a webhook, once.",
        _test,
        WebhookTested,
        TokenRole.ADMIN,
        Nothing,
    ),
    Route(
        "GET",
        "/v1/webhooks/{name}/dead-letters",
        "What a webhook was to be told and was given up, the oldest first.",
        _dead_letters,
        page_of(DeadLetter),
        TokenRole.READER,
        asks=LetterPaging,
    ),
    Route(
        "POST",
        "/v1/webhooks/{name}/redeliver",
        "Have dead letters tried again, these or all of them.",
        _redeliver,
        Redelivered,
        TokenRole.ADMIN,
        Redeliver,
        memory=Memory.PROCESS,
    ),
)
