"""Bodies that services have sent, or may, and what they mean: one table for both clients."""

from datetime import UTC, datetime

from fairnotice.client import Document, Event

ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
OTHER = "4CAEA225-A741-474D-A72E-428C86FCD853"
SIX = (
    b'{"DocumentIncarnation":2,"Events":[{"EventId":"%s","EventStatus":"Scheduled","EventType":'
    b'"Reboot","ResourceType":"VirtualMachine","Resources":["web_0"],"NotBefore":'
    b'"Sun, 01 Mar 2026 12:15:00 GMT"%s}]}'
)
NOON = datetime(2026, 3, 1, 12, 15, tzinfo=UTC)


def reboot(**more):
    """The event of SIX, and what a later version tells of it."""
    known = {
        "id": ID,
        "type": "Reboot",
        "status": "Scheduled",
        "resources": ("web_0",),
        "not_before": NOON,
        "resource_type": "VirtualMachine",
    }
    return Event(**{**known, **more})


def six(extra=b"", **changed):
    """The bytes of a document with one event: more keys, or other words in it."""
    body = SIX % (ID.encode(), extra)
    for before, after in changed.values():
        assert before in body
        body = body.replace(before, after)
    return body


def not_before(text):
    """The same with another NotBefore."""
    return six(it=(b"Sun, 01 Mar 2026 12:15:00 GMT", text))


def one(**more):
    """The document with that event."""
    return Document(2, (reboot(**more),))


DESCRIPTION = b',"Description":"Host server is undergoing maintenance."'
TOLD = {"description": "Host server is undergoing maintenance."}
SOURCE = DESCRIPTION + b',"EventSource":"Platform"'
DURATION = SOURCE + b',"DurationInSeconds":-1'

GOOD = {
    "no events": (b'{"DocumentIncarnation":1,"Events":[]}', Document(1)),
    "2017-03-01": (
        six(it=(b'"web_0"', b'"_web_0"')),
        one(resources=("_web_0",)),
    ),
    "2017-08-01 to 2019-01-01": (six(), one()),
    "2019-04-01": (six(DESCRIPTION), one(**TOLD)),
    "2019-08-01": (six(SOURCE), one(**TOLD, source="Platform")),
    "2020-07-01": (six(DURATION), one(**TOLD, source="Platform", duration_seconds=-1)),
    "a type nobody knows": (
        six(it=(b"Reboot", b"SpotRebalanceRecommendation")),
        one(type="SpotRebalanceRecommendation"),
    ),
    "a status nobody knows": (six(it=(b"Scheduled", b"Active")), one(status="Active")),
    "keys nobody knows": (six(b',"Mood":{"a":[1]}'), one()),
    "started": (
        six(it=(b"Scheduled", b"Started"), at=(b"Sun, 01 Mar 2026 12:15:00 GMT", b"")),
        one(status="Started", not_before=None),
    ),
    "RFC 3339": (not_before(b"2026-03-01T12:15:00Z"), one()),
    "RFC 3339, elsewhere": (not_before(b"2026-03-01T14:15:00.000+02:00"), one()),
    "RFC 822": (not_before(b"01 Mar 26 13:15 +0100"), one()),
    "RFC 850": (not_before(b"Sunday, 01-Mar-26 12:15:00 GMT"), one()),
    "a wrong weekday": (not_before(b"Mon, 01 Mar 2026 12:15:00 GMT"), one()),
    "no instant": (not_before(b"soon"), one(not_before=None)),
    "a day that is not": (not_before(b"Sun, 31 Feb 2026 12:15:00 GMT"), one(not_before=None)),
    "NotBefore null": (not_before(b"").replace(b'""', b"null"), one(not_before=None)),
    "control characters": (
        six(b',"Description":"Host\x01 server\x0b is\nback"'),
        one(description="Host\x01 server\x0b is\nback"),
    ),
    "a byte order mark": (b"\xef\xbb\xbf" + six(), one()),
    "bytes that are no UTF-8": (six(b',"Description":"\xff"'), one(description="\ufffd")),
    "numbers as text": (
        six(b',"DurationInSeconds":"9"', it=(b":2,", b':"2",')),
        one(duration_seconds=9),
    ),
    "a small id": (six(it=(ID.encode(), ID.lower().encode())), one()),
    "no incarnation": (b'{"Events":[]}', Document(0)),
    "Events null": (b'{"DocumentIncarnation":3,"Events":null}', Document(3)),
    "an event with its id alone": (
        b'{"DocumentIncarnation":0,"Events":[{"EventId":"%s"}]}' % ID.encode(),
        Document(0, (Event(ID, "", ""),)),
    ),
    "the same id twice": (
        b'{"DocumentIncarnation":2,"Events":[{"EventId":"a"},{"EventId":"A","EventType":"Freeze"}]}',
        Document(2, (Event("A", "Freeze", ""),)),
    ),
}
BAD = {
    "an empty body": b"",
    "white space": b" \r\n",
    "no JSON": b"\x00\xff<html>",
    "half a document": six()[:80],
    "an error": b'{"error":"Bad request"}',
    "a list": b"[]",
    "deeper than can be read": b"[" * 100_000,
    "a number nobody can hold": b'{"DocumentIncarnation":NaN,"Events":[]}',
    "an incarnation that is a word": b'{"DocumentIncarnation":"new","Events":[]}',
    "Events is an object": b'{"DocumentIncarnation":1,"Events":{}}',
    "an event that is text": b'{"DocumentIncarnation":1,"Events":["Reboot"]}',
    "an event without an id": b'{"DocumentIncarnation":1,"Events":[{"EventType":"Reboot"}]}',
    "a type that is a number": b'{"Events":[{"EventId":"A","EventType":1}]}',
    "Resources is text": b'{"DocumentIncarnation":1,"Events":[{"EventId":"A","Resources":"a"}]}',
}
