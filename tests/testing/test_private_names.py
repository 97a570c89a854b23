"""Private names: planted everywhere, found nowhere; and a client still finds itself."""

import gzip
import json
import re

import pytest

from fairnotice.engine.kinds import LIVE_MIGRATION
from fairnotice.model import Node, Scope, Vm
from fairnotice.testing.recordings.private_names import PrivateNames
from fairnotice.testing.recordings.recording import Answer, Asked, Failure, Recording
from fairnotice.wire.instance import facts_of, tree
from fairnotice.words import ScopeKind
from tests.testing.taped import ID, POLL, answer, answering, document, http, recorded

SECRETS = ("contoso", "müller", "web-0", "4f1c", "10.20.30.40", "ssh-rsa")
# The last two as old encodings write them.
IN_BYTES = (*(secret.encode() for secret in SECRETS), b"m\xfcller", b"\xe8\xe2\xe0\xed")
SUBSCRIPTION = "4f1c0000-aaaa-4bbb-8ccc-123456789abc"
INSTANCE = Asked("GET", "/metadata/instance?api-version=2021-02-01", POLL.head)
GUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"


def instance():
    """An instance document with private names wherever there may be one."""
    scope = Scope("vm:web-0", ScopeKind.STANDALONE, "web-0")
    vm = Vm(
        name="web-0",
        scope=scope.name,
        node="node-0",
        resource_group="Contoso-RG",
        addresses=("10.20.30.40",),
        tags=(("contoso-owner", "Müller"), ("müller", "4f1c")),
    )
    node = Node("node-0", fault_domain=0)
    facts = facts_of(vm, node, scope, subscription_id=SUBSCRIPTION, location="westeurope")
    whole = tree(facts, "2021-02-01")
    whole["compute"] |= {
        "publicKeys": [{"keyData": "ssh-rsa AAAA", "path": "/home/müller/.ssh"}],
        "customData": "Y29udG9zbw contoso",
        "osProfile": {"adminUsername": "müller", "computerName": "WEB-0"},
        "licenseType": "Windows_Server",
        "host": {"id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/x/hosts/contoso-h1"},
        "unheardOf": {"deep": ["contoso", {"er": "müller"}]},
    }
    return json.dumps(whole, ensure_ascii=False).encode()


PLANTED = {
    "a document": answer(document(Description="contoso: ask Müller"), f"ETag: {SUBSCRIPTION}"),
    "an unknown element": answer(document(Owner="contoso", More={"a": ["web-0"]})),
    "an element twice": answer(
        b'{"Events":[],"Owner":"contoso","Owner":"me","Owner":"M\xc3\xbcller"}'
    ),
    "escaped": answer(b'{"Events":[{"Resources":["w\\u0065b-0","m\\u00fcller"]}]}'),
    "control characters": answer(document().replace(b"Reboot", b"Reboot\x01 contoso")),
    "an instance document": answer(instance()),
    "a header": answer(document(), "X-Host: contoso.example", "Location: http://10.20.30.40/x"),
    "a header of bytes": Answer((b"HTTP/1.1 200 OK", b"X-Owner: M\xc3\xbcller contoso"), b""),
    "an error": answer(b'{"error":"No VM web-0 of contoso at 10.20.30.40"}', status="403 No"),
    "a page": answer(b"<html>contoso, M\xc3\xbcller, 10.20.30.40</html>"),
    "no UTF-8": answer(b"contoso \xff\xfe web-0 m\xfcller \xe8\xe2\xe0\xed"),
    "cut off": Answer(
        (b"HTTP/1.1 200 OK", b"Content-Length: 999"), document()[:180], Failure.DROPPED
    ),
    "garbage": Answer((), b"SSH-2.0-contoso\r\n", Failure.GARBAGE),
    "packed": answer(b"\x1f\x8bcontoso", "Content-Encoding: gzip"),
    "a text": answer(b'"contoso"'),
    "a folded header": Answer((b"HTTP/1.1 200 OK", b"X-A: 1", b" contoso", b" web-0: X"), b"{}"),
    "a phrase": answer(b"{}", status="200 contoso web-0"),
    "no phrase at all": Answer((b"HTTP/contoso", b"A: 1"), b"{}"),
    "a server": Answer((b"HTTP/1.1 200 OK", b"Server: IMDS on contoso"), b"{}"),
    "public headers": answer(
        b"{}", "Content-Type: application/json; host=contoso", "Allow: contoso", "Vary: web-0"
    ),
    "dates of headers": answer(b"{}", "Date: M\u00fcller", "Expires: contoso", "Retry-After: 4f1c"),
    "half a head": Answer((), b"HTTP/1.1 200 OK\r\nX-Owner: contoso", Failure.DROPPED),
    "an id for a word": answer(document(EventSource=SUBSCRIPTION, EventType=SUBSCRIPTION)),
}


def as_bytes(one):
    """What an endpoint sends that answers so."""
    return b"\r\n".join((*one.head, b"", one.body)) if one.head else one.body


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("cut", [False, True])
def test_nothing_private_remains(tmp_path, name, cut):
    """Neither in the document, nor in a head, nor where the names were not known yet."""
    one = PLANTED[name]
    asked = Asked(
        "POST" if cut else "GET",
        "/vm/web-0/metadata/scheduledevents?api-version=2020-07-01&owner=contoso",
        (b"Host: contoso", b"User-Agent: contoso/1"),
        b'{"StartRequests":[{"EventId":"4f1c0000-aaaa-4bbb-8ccc-123456789abc","x":"web-0"}]}',
    )
    with answering(as_bytes(one)) as url:
        names = PrivateNames(anonymise=True)
        recorded(tmp_path / "a", f"{url}/contoso", asked, names=names)
    (one,) = Recording(tmp_path / "a").exchanges()
    written = (tmp_path / "a").read_text("utf-8").lower()
    # Also what is escaped or base64 in the file.
    parts = (*one.asked.head, one.asked.body, *one.answer.head, one.answer.body)
    kept = b"\n".join(parts).lower()

    assert [secret for secret in SECRETS if secret in written] == []
    assert [secret for secret in IN_BYTES if secret in kept] == []


def test_the_same_name_has_the_same_replacement(tmp_path):
    """A client finds itself among the Resources; ids are ids; the length is right."""
    many = document(Resources=["web-1", "WEB-0", "web-1"])
    oldest = document(Resources=["_web-0"])
    data = (http(instance()), http(many), http(document()), http(oldest))
    with answering(*data) as url:
        names = PrivateNames(anonymise=True)
        recorded(tmp_path / "a", url, INSTANCE, POLL, POLL, POLL, names=names)
    own, first, second, third = (one.answer for one in Recording(tmp_path / "a").exchanges())
    compute = json.loads(own.body)["compute"]
    (event,), (again,), (old,) = (json.loads(one.body)["Events"] for one in (first, second, third))

    name = compute["name"]
    other = event["Resources"][0]
    assert event["Resources"] == [other, name, other]
    assert (again["Resources"], old["Resources"]) == ([name], [f"_{name}"])
    assert other != name
    assert re.fullmatch(r"vm-\d+", name)
    assert re.fullmatch(GUID, event["EventId"])
    assert event["EventId"] == again["EventId"] != ID
    assert re.fullmatch(GUID, compute["subscriptionId"])
    assert compute["resourceId"].split("/")[2] == compute["subscriptionId"]
    assert compute["resourceId"].endswith(name)
    # A tag is no VM.
    assert all(tag["name"].startswith("text-") for tag in compute["tagsList"])
    assert len(compute["tagsList"]) == 2
    for one in (own, first, second):
        assert one.header("content-length") == b"%d" % len(one.body)


@pytest.mark.parametrize(
    "target",
    [
        "/metadata/instance/compute/tags/contoso?api-version=2021-02-01&format=text",
        "/vm/web-0/metadata/instance/compute/tags/contoso",
        "/contoso?contoso&contoso=1&api-version=contoso&format=contoso",
        "/metadata/scheduledevents?api-version=2020-07-01-contoso",
    ],
)
def test_nothing_private_remains_of_an_address(tmp_path, target):
    """What is asked for stays, where it is the name of a document or of an element."""
    with answering(http(b"{}")) as url:
        names = PrivateNames(anonymise=True)
        recorded(tmp_path / "a", url, Asked("GET", target, POLL.head), names=names)
    (one,) = Recording(tmp_path / "a").exchanges()

    assert [word for word in ("contoso", "web-0") if word in (tmp_path / "a").read_text()] == []
    kept = ("metadata", "instance/compute/tags/", "2021-02-01&format=text")
    assert [word in one.asked.target for word in kept] == [word in target for word in kept]


def test_a_vm_called_like_a_version_or_a_number_of_one_is_a_vm(tmp_path):
    """Where a version stands it stays."""
    body = b'{"newest-versions":["2020-07-01"],"Events":[{"Resources":["2024-01-01"]}]}'
    with answering(http(body)) as url:
        recorded(tmp_path / "a", url, POLL, names=PrivateNames(anonymise=True))
    (one,) = Recording(tmp_path / "a").exchanges()

    assert one.answer.body == body.replace(b"2024-01-01", b"vm-1")
    assert one.asked.target == POLL.target


def test_the_longest_name_is_found_first(tmp_path):
    """In what cannot be read, a name that holds another is not taken for it."""
    both = document(Resources=["web-0", "web-0-blue", "a-web-0"])
    with answering(http(both), http(b"no JSON: web-0-blue, a-web-0, web-0!")) as url:
        recorded(tmp_path / "a", url, POLL, POLL, names=PrivateNames(anonymise=True))
    _, page = Recording(tmp_path / "a").exchanges()

    assert page.answer.body == b"xx xxxx: vm-2, vm-3, vm-1!"


def test_the_head_of_an_answer_stays_as_far_as_it_is_public(tmp_path):
    """By these a client decides."""
    head = (
        "Content-Type: application/json; charset=utf-8",
        "Date: Thu, 01 Jan 2026 00:15:00 GMT",
        "Retry-After: 5",
        "Cache-Control: no-store, max-age=0",
        "Allow: GET, POST",
        "Connection: keep-alive",
        "Vary: Accept-Encoding",
    )
    sent = http(b"{}", *head, status="429 Too Many Requests")
    with answering(sent) as url:
        recorded(tmp_path / "a", url, POLL, names=PrivateNames(anonymise=True))
    (one,) = Recording(tmp_path / "a").exchanges()

    assert b"\r\n".join((*one.answer.head, b"", one.answer.body)) == sent
    assert one.answer.header("server") == b"IMDS/1"


def test_half_a_head_stays_half_a_head(tmp_path):
    """A client sees the same end too early."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Owner: contoso") as url:
        recorded(tmp_path / "a", url, POLL, names=PrivateNames(anonymise=True))
    (one,) = Recording(tmp_path / "a").exchanges()

    assert one.answer.failure is Failure.DROPPED
    assert one.answer.body == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Owner: xxxxxxx"
    )


def test_what_is_public_stays(tmp_path):
    """What a client decides by is as Azure said it, in Azure's spacing."""
    body = document(Description=LIVE_MIGRATION, EventSource="Platform", DurationInSeconds=5)
    spaced = json.dumps(json.loads(body), indent=2).encode()
    fault = b'{ "error": "Bad request: . Required metadata header not specified" }'
    with answering(http(spaced), http(fault)) as url:
        names = PrivateNames(anonymise=True)
        recorded(tmp_path / "a", url, POLL, POLL, names=names)
    first, second = (one.answer.body for one in Recording(tmp_path / "a").exchanges())

    hidden = spaced.replace(ID.encode(), b"00000000-0000-4000-8000-000000000001")
    assert first == hidden.replace(b"web-0", b"vm-1")
    assert second == fault


def test_a_name_that_is_a_word_of_azure_hurts_nothing(tmp_path):
    """A VM may be called Scheduled; the event is still Scheduled."""
    with answering(http(document(Resources=["Scheduled"]))) as url:
        recorded(tmp_path / "a", url, POLL, names=PrivateNames(anonymise=True))
    (one,) = Recording(tmp_path / "a").exchanges()
    (event,) = json.loads(one.answer.body)["Events"]

    assert (event["EventStatus"], event["Resources"]) == ("Scheduled", ["vm-1"])


def test_a_leaf_is_named_like_its_document(tmp_path):
    """`/compute/name?format=text` says what stands in Resources."""
    leaf = Asked("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text")
    with answering(http(b"web-0"), http(document())) as url:
        names = PrivateNames(anonymise=True)
        recorded(tmp_path / "a", url, leaf, POLL, names=names)
    name, shown = (one.answer.body for one in Recording(tmp_path / "a").exchanges())

    assert json.loads(shown)["Events"][0]["Resources"] == [name.decode()]


def test_named_replacements_are_made_everywhere_and_in_any_case(tmp_path):
    """In bodies, heads and targets, escaped too; the rest is as it was received."""
    given = [("web-0", "vm-a"), ("Müller", "A\\1"), ("contoso", "example-inc")]
    body = '{"a":"WEB-0x","b":"m\\u00fcller MÜLLER","c":"_web-0","d":"Contoso.com"}'.encode()
    asked = Asked("GET", "/vm/Web-0/metadata?owner=M%C3%BCller")
    sent = http(body, "X-Host: web-0.CONTOSO", status="200 web-0")
    with answering(sent, http(body, length=len(body) + 9)) as url:
        recorded(tmp_path / "a", f"{url}/contoso", asked, asked, names=PrivateNames(given))
    first, cut = Recording(tmp_path / "a").exchanges()
    written = (tmp_path / "a").read_text().lower()

    wanted = b'{"a":"vm-ax","b":"A\\1 A\\1","c":"_vm-a","d":"example-inc.com"}'
    assert first.answer.body == wanted
    assert first.answer.head[0] == b"HTTP/1.1 200 vm-a"
    assert first.answer.header("x-host") == b"vm-a.example-inc"
    assert first.answer.header("content-length") == b"%d" % len(wanted)
    # What was missing is missing still.
    assert cut.answer.header("content-length") == b"%d" % (len(wanted) + 9)
    assert [word for word in ("web-0", "contoso", "ller") if word in written] == []


@pytest.mark.parametrize(
    ("old", "written"),
    [
        ("R&D", r"R\u0026D"),
        ("R&D", "r%26d"),
        ("my-vm", r"my\u002Dvm"),
        ("my-vm", r"\u006d\u0079\u002d\u0076\u006d"),
        ("a/b", r"a\/b"),
        ("a/b", "a%2Fb"),
        ("my vm", "my+vm"),
        ("my vm", "MY%20VM"),
        ("m\u00fcller", r"M\u00DCLLER"),
        ("m\u00fcller", "M%C3%9Cller"),
        ("\U0001f680", r"\ud83d\ude80"),
        ("a\\b%", r"a\\b%25"),
        ('say "x"', r"say \"x\""),
    ],
)
def test_a_name_is_found_however_it_is_escaped(tmp_path, old, written):
    """Each letter by itself, as JSON or an address may write it."""
    asked = Asked("GET", f"/metadata?owner={written}")
    with answering(http(f'{{"a":"{written}"}}'.encode())) as url:
        recorded(tmp_path / "a", url, asked, names=PrivateNames([(old, "new")]))
    (one,) = Recording(tmp_path / "a").exchanges()

    assert (one.asked.target, one.answer.body) == ("/metadata?owner=new", b'{"a":"new"}')


def test_what_is_packed_is_left_out(tmp_path):
    """Nobody could say which names are in it."""
    packed = gzip.compress(b"web-0")
    with answering(http(packed, "Content-Encoding: gzip")) as url:
        recorded(tmp_path / "a", url, POLL, names=PrivateNames([("web-0", "vm-a")]))
    (one,) = Recording(tmp_path / "a").exchanges()

    assert (one.answer.body, one.answer.header("content-length")) == (b"", b"0")
