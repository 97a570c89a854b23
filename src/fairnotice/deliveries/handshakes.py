"""Asking a receiver whether he wants to be told, before he is told anything.

Else anybody who may make a webhook could have this service send to whom he pleases.

    cloudevents   OPTIONS with WebHook-Request-Origin; allowed by WebHook-Allowed-Origin (the HTTP
                  webhook specification of CloudEvents, "abuse protection")
    eventgrid     a SubscriptionValidation event with a code; allowed by `validationResponse`, or
                  later by whoever opens its validationUrl
"""

import hmac
from datetime import datetime
from uuid import uuid4

import msgspec

from fairnotice.deliveries import shapes
from fairnotice.deliveries.sending import Answer, Sender, shown, target_of
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.webhooks import Webhook
from fairnotice.words import EventSchema

ORIGIN = "fairnotice"
# Receivers that were made for Azure Event Grid may answer with its name whoever asks: they want to
# be told what we tell, in its shape.
ALLOWED = frozenset({"*", ORIGIN, "eventgrid.azure.net"})
# Whoever makes a webhook waits for it, and one that follows waits for the leader 15 s in all.
HANDSHAKE_SECONDS = 10.0
SUCCESS = range(200, 300)


class _Said(msgspec.Struct):
    validationResponse: str = ""  # noqa: N815 - Event Grid's word


async def agreed(
    sender: Sender, webhook: Webhook, *, at: datetime, subscription: str, validation_url: str = ""
) -> bool:
    """Whether the receiver wants to be told; False: he may still say so by the validation URL.

    UsageError where he does not, or does not answer.
    """
    try:
        if webhook.schema is EventSchema.CLOUDEVENTS:
            await _ask_origin(sender, webhook)
            return True
        return await _ask_code(sender, webhook, at, subscription, validation_url)
    except Unavailable as error:
        raise UsageError(f"{shown(webhook.url)} was asked whether it agrees: {error}.") from error


async def _ask_origin(sender: Sender, webhook: Webhook) -> None:
    target = target_of(webhook.url, allow_http=webhook.allow_http)
    headers = [("WebHook-Request-Origin", ORIGIN)]
    answer = await sender.ask("OPTIONS", target, headers, seconds=HANDSHAKE_SECONDS)
    allowed = answer.headers.get("webhook-allowed-origin", "")
    if answer.status not in SUCCESS or allowed.lower() not in ALLOWED:
        raise UsageError(
            f"{shown(webhook.url)} does not agree to be told: to OPTIONS with "
            f"WebHook-Request-Origin: {ORIGIN} it answered {answer.status}"
            f"{f' and allows {allowed[:80]!r}' if allowed else ''}. It has to answer 200 with "
            f"WebHook-Allowed-Origin: {ORIGIN} (or *)."
        )


async def _ask_code(
    sender: Sender, webhook: Webhook, at: datetime, subscription: str, url: str
) -> bool:
    target = target_of(webhook.url, allow_http=webhook.allow_http)
    body, headers = shapes.validation(webhook, str(uuid4()), at, subscription, url)
    answer = await sender.ask("POST", target, headers, body, HANDSHAKE_SECONDS)
    if answer.status in SUCCESS and _repeats(answer, webhook.validation_code):
        return True
    if answer.status in SUCCESS and url and not answer.body.strip():
        return False
    raise UsageError(
        f"{shown(webhook.url)} does not agree to be told: to the SubscriptionValidation event it "
        f"answered {answer.status}. It has to answer 200 with "
        '{"validationResponse": CODE}, with the validationCode of that event; or 200 and nothing, '
        "and its validationUrl is opened later."
    )


def _repeats(answer: Answer, code: str) -> bool:
    try:
        said = msgspec.json.decode(answer.body, type=_Said).validationResponse
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return hmac.compare_digest(said.encode(), code.encode())
