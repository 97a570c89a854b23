"""Private names, replaced while they are recorded: those that were named, or all there are.

With `anonymise`, what is known to be public is kept and everything else is replaced: the same name
by the same replacement, so that a client still finds itself among an event's Resources. What
cannot be read as a document keeps its shape, and of its words only the public ones.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from json.encoder import encode_basestring
from urllib.parse import unquote

from fairnotice.engine.kinds import KINDS
from fairnotice.testing.recordings.recording import Answer, Asked, Exchange, key_of
from fairnotice.wire import error_bodies
from fairnotice.words import EventSource, EventStatus, EventType

AZURE_URL = "http://169.254.169.254"
_AZURE_ADDRESS = "169.254.169.254"
_ANY_GUID = "00000000-0000-4000-8000-000000000000"
_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?', re.DOTALL)
_WORD = re.compile(r"\w+")
# What a byte that is no UTF-8 is read as.
_BYTE = re.compile("[\udc80-\udcff]")
# In /vm/NAME/metadata/…
_NAMED = 2
_INSTANT = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
# Azure's own words have no blanks, and are no ids.
_AZURE_WORD = re.compile(rf"(?!.*{_GUID.pattern})[\w.-]{{0,64}}", re.ASCII)
# A number that is somebody's is longer.
_SHORT_NUMBER = re.compile(r"-?\d{1,4}")
_STATUS_LINE = re.compile(r"(HTTP/\d\.\d \d{3})( ?)(.*)", re.DOTALL)
_PHRASES = frozenset(status.phrase for status in HTTPStatus)
# What Azure and this endpoint call themselves in the header Server.
_SERVER = re.compile(r"(?:IMDS|Microsoft-IIS)/(?:fairnotice-)?[\d.]+")
# What is asked for by these parameters.
_PUBLIC_PARAMETERS = {
    "api-version": re.compile(r"\d{4}-\d\d-\d\d(?:-preview)?|latest", re.IGNORECASE),
    "format": re.compile("json|text", re.IGNORECASE),
}

# Elements of the two documents whose values are Azure's own words.
_PUBLIC_KEYS = frozenset(
    "EventStatus EventType ResourceType EventSource api-version apiVersions newest-versions "
    "azEnvironment caching createOption evictionPolicy licenseType location offer osType "
    "platformFaultDomain platformUpdateDomain platformSubFaultDomain priority provider publisher "
    "sku storageAccountType version vmSize zone physicalZone".lower().split()
)
_EVENT_KEYS = (
    "DocumentIncarnation Events EventId EventStatus EventType ResourceType Resources NotBefore "
    "Description EventSource DurationInSeconds StartRequests VirtualMachine error"
)
_PUBLIC_WORDS = frozenset({*EventType, *EventStatus, *EventSource, *_EVENT_KEYS.split()})
_PUBLIC_VALUES = frozenset({"", "true", "false", "VirtualMachine"})
# Clients tell events apart by these sentences; and what an endpoint says is wrong.
_SENTENCES = frozenset(kind.description for kind in KINDS.values()) | {
    json.loads(body)["error"] for body in vars(error_bodies).values() if isinstance(body, bytes)
}
_PUBLIC_SEGMENTS = re.compile(
    "subscriptions|resourcegroups|providers|microsoft\\..*|virtualmachines|virtualmachinescalesets|"
    "cloudservices|roleinstances|disks|images|galleries|",
    re.IGNORECASE,
)
_PUBLIC_HEADERS = re.compile(
    "accept|allow|cache-control|connection|content-length|content-type|date|expires|keep-alive|"
    "last-modified|metadata|pragma|retry-after|transfer-encoding|vary"
)
# Words in the values of these. A VM may be called like one of them: nobody sees that it is.
_HEADER_WORDS = frozenset(
    "Accept age alive application cache charset chunked close connection control delete encoding "
    "etag get gzip head html identity if json keep language match max metadata modified must no "
    "none octet options origin patch plain post prefer private proxy public put q revalidate since "
    "store stream text timeout true utf xml".lower().split()
)
# Parts of the paths below /metadata: the documents, and the elements of the VM's own.
_PATH_WORDS = frozenset(
    "metadata scheduledevents versions instance attested document identity info oauth2 token "
    "loadbalancer compute network interface ipv4 ipv6 ipAddress privateIpAddress publicIpAddress "
    "subnet address prefix macAddress additionalCapabilities customData diskSizeGB "
    "extendedLocation hibernationEnabled host hostGroup id isHostCompatibilityLayerVm "
    "isVmInStandbyPool name osProfile adminUsername computerName disablePasswordAuthentication "
    "placementGroupId plan product publicKeys keyData path resourceGroupName resourceId "
    "securityProfile encryptionAtHost secureBootEnabled virtualTpmEnabled securityType "
    "storageProfile dataDisks imageReference managedDisk osDisk resourceDisk size image uri vhd "
    "lun writeAcceleratorEnabled subscriptionId tags tagsList userData value "
    "virtualMachineScaleSet vmId vmScaleSetName isUltraDisk bytesPerSecondThrottle "
    "opsPerSecondThrottle ultraSSDEnabled".lower().split()
) | (_PUBLIC_KEYS - {"api-version"})
_KINDS = {
    "name": "vm",
    "resources": "vm",
    "vmscalesetname": "scale-set",
    "resourcegroupname": "group",
    "computername": "computer",
}


class PrivateNames:
    """What is private, and what stands for it in the recording."""

    def __init__(self, given: Sequence[tuple[str, str]] = (), *, anonymise: bool = False) -> None:
        self._given = [(_everywhere(old), new.replace("\\", r"\\")) for old, new in given]
        self._anonymise = anonymise
        # By the name in lower case: one that is written in another case is the same.
        self._found: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Whether anything is replaced."""
        return self._anonymise or bool(self._given)

    def url(self, url: str) -> str:
        """What the recording says of where it was made."""
        if self._anonymise and url != AZURE_URL:
            return ""
        return self._replace_given(url)

    def clean(self, exchange: Exchange) -> Exchange:
        """The exchange, as it may be shown to anybody."""
        if not self.active:
            return exchange
        asked, answer = exchange.asked, exchange.answer
        leaf = key_of(asked.target)
        name = leaf.path.rpartition("/")[2] if leaf.form == "text" else ""
        # Names are found in the path and in bodies, so these are first.
        target = self._target(asked.target)
        body = self._body(asked.body, "")
        if not answer.head and answer.body.startswith(b"HTTP/"):
            # It was cut off in its head.
            text = b"\r\n".join(self._head(answer.body.split(b"\r\n"), 0))
        else:
            text = b"" if _is_packed(answer) else self._body(answer.body, name)
        moved = len(text) - len(answer.body)
        longer = len(body) - len(asked.body)
        head = self._head(answer.head, moved)
        sent = tuple(self._header(line, longer) for line in asked.head)
        return exchange._replace(
            asked=Asked(asked.method, target, sent, body),
            answer=answer._replace(head=head, body=text),
        )

    # ---- Parts ----

    def _replace_given(self, text: str) -> str:
        for old, new in self._given:
            text = old.sub(new, text)
        return text

    def _target(self, target: str) -> str:
        if self._anonymise:
            path, mark, query = target.partition("?")
            segments = path.split("/")
            named = len(segments) > _NAMED and segments[1].lower() == "vm"
            kept = segments[: _NAMED + 1] if named else []
            if named:
                kept[_NAMED] = self._stand_in("vm", unquote(kept[_NAMED]))
            segments = [*kept, *map(_path_segment, segments[len(kept) :])]
            pairs = (self._pair(pair) for pair in query.split("&"))
            target = "/".join(segments) + mark + "&".join(pairs)
        return self._replace_given(target)

    def _pair(self, pair: str) -> str:
        name, mark, value = pair.partition("=")
        form = _PUBLIC_PARAMETERS.get(name.lower())
        if form is None:
            name = _WORD.sub(_masked, name)
        elif form.fullmatch(value):
            return pair
        return name + mark + (self._hidden("", value) if value else "")

    def _head(self, lines: Sequence[bytes], moved: int) -> tuple[bytes, ...]:
        headers = (self._header(line, moved) for line in lines[1:])
        return (*map(self._status_line, lines[:1]), *headers)

    def _status_line(self, line: bytes) -> bytes:
        text = _text(line)
        if self._anonymise:
            found = _STATUS_LINE.fullmatch(text)
            if found is None:
                text = self._masked(text)
            elif found[3] not in _PHRASES:
                text = found[1] + found[2] + self._masked(found[3])
        return _bytes(self._replace_given(text))

    def _header(self, line: bytes, moved: int) -> bytes:
        name, colon, value = line.partition(b":")
        low = name.strip().lower().decode("latin-1")
        if not colon or line[:1].isspace():
            # No header, or what goes on from the line before.
            text = _text(line)
            return _bytes(self._replace_given(self._masked(text) if self._anonymise else text))
        if low == "content-length" and value.strip().isdigit():
            # Also of an answer that broke off: what was missing is missing still.
            return b"%s: %d" % (name, int(value) + moved)
        text = _text(value)
        if self._anonymise and _PUBLIC_HEADERS.fullmatch(low):
            text = text if _INSTANT.fullmatch(text.strip()) else _BYTE.sub("\udcff", _known(text))
        elif self._anonymise:
            text = " " + self._unknown_header(low, text.strip())
        return name + colon + _bytes(self._replace_given(text))

    def _unknown_header(self, name: str, value: str) -> str:
        if (name == "server" and _SERVER.fullmatch(value)) or value == _AZURE_ADDRESS:
            return value
        if name == "etag":
            return f'"{self._stand_in("etag", value)}"'
        if _GUID.fullmatch(value):
            # Another in every answer: to remember each would fill the memory in a few days.
            return _ANY_GUID
        return self._masked(value)

    def _body(self, body: bytes, leaf: str) -> bytes:
        text = _text(body)
        if self._anonymise:
            text = self._anonymous(text, leaf)
        return _bytes(self._replace_given(text))

    # ---- All that is private ----

    def _anonymous(self, text: str, leaf: str) -> str:
        try:
            document = json.loads(text, object_pairs_hook=_Pairs, strict=False)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, list):
            return self._hidden(leaf, text) if leaf else self._masked(text)
        # In the order of the document, which is that of its texts.
        stand_ins = [self._hidden(key, value) for key, value in _values(document)]
        return _LITERAL.sub(_literal(iter(stand_ins)), text)

    def _masked(self, text: str) -> str:
        """The text with the public words in it, what stands for names, and an x for the rest."""
        names = sorted(self._found, key=len, reverse=True)
        known = "|".join(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])" for name in names)
        either = re.compile(rf"(?P<name>{known or '(?!)'})|\w+", re.IGNORECASE)

        def replaced(found: re.Match[str]) -> str:
            stand_in = self._found.get((found["name"] or "").lower())
            return stand_in or _masked(found)

        # A byte that is no UTF-8 stays one.
        return _BYTE.sub("\udcff", either.sub(replaced, text))

    def _hidden(self, key: str, value: str) -> str:
        """What stands for the value of an element."""
        public = value in _PUBLIC_VALUES or value in _SENTENCES or _INSTANT.fullmatch(value)
        if public or (key.lower() in _PUBLIC_KEYS and _AZURE_WORD.fullmatch(value)):
            return value
        if _SHORT_NUMBER.fullmatch(value):
            return value
        if value.lower().startswith("/subscriptions/"):
            return "/".join(map(self._segment, value.split("/")))
        if key.lower() == "resources" and value.startswith("_"):
            # The oldest api-version puts it before every name.
            return "_" + self._stand_in("vm", value[1:])
        return self._stand_in(_KINDS.get(key.lower(), "text"), value)

    def _segment(self, segment: str) -> str:
        public = _PUBLIC_SEGMENTS.fullmatch(segment)
        return segment if public else self._stand_in("text", segment)

    def _stand_in(self, kind: str, name: str) -> str:
        """What stands for this name; the same one for the same name."""
        known = self._found.get(name.lower())
        if known is not None:
            return known
        if _GUID.fullmatch(name):
            made = f"00000000-0000-4000-8000-{self._count('guid'):012}"
        elif _ADDRESS.fullmatch(name):
            number = self._count("address")
            made = f"10.0.{number // 256 % 256}.{number % 256}"
        else:
            made = f"{kind}-{self._count(kind)}"
        self._found[name.lower()] = made
        return made

    def _count(self, kind: str) -> int:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind]


def _everywhere(old: str) -> re.Pattern[str]:
    """A name in any case, each letter of it also as JSON and as addresses may write it."""
    return re.compile("".join(map(_however_written, old)), re.IGNORECASE)


def _however_written(letter: str) -> str:
    """A pattern: what is escaped before what is not, since a backslash begins an escape."""
    forms = [r"\/"] if letter == "/" else []
    for one in {letter, letter.lower(), letter.upper()}:
        pairs = one.encode("utf-16-be", "surrogatepass").hex()
        forms += ["".join(rf"\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))]
        forms += ["".join(f"%{byte:02x}" for byte in _bytes(one))]
        forms += [encode_basestring(one)[1:-1], one]
    forms += ["+"] if letter == " " else []
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(forms)))})"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _path_segment(segment: str) -> str:
    """A part of a path: it stays where it is the name of a document or of an element."""
    public = segment.lower() in _PATH_WORDS or _SHORT_NUMBER.fullmatch(segment)
    return segment if public else _WORD.sub(_masked, segment)


def _known(text: str) -> str:
    """The words of HTTP in the value of a header, and an x for each letter of the others."""

    def replaced(found: re.Match[str]) -> str:
        public = found[0].lower() in _HEADER_WORDS or _SHORT_NUMBER.fullmatch(found[0])
        return found[0] if public else "x" * len(found[0])

    return _WORD.sub(replaced, text)


class _Pairs(list[tuple[str, object]]):
    """An object of a document, also one in which a name is there twice."""


def _values(node: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with the name of the element it is of."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, _Pairs):
        # A tag's name is a name, and no VM's.
        tag = {name for name, _ in node} == {"name", "value"}
        for name, item in node:
            yield from _values(item, "" if tag else name)
    elif isinstance(node, list):
        for item in node:
            yield from _values(item, key)


def _literal(stand_ins: Iterator[str]) -> Callable[[re.Match[str]], str]:
    """Replaces the texts of a document one after another; the names of elements stay."""

    def replaced(found: re.Match[str]) -> str:
        if found["colon"] is not None:
            return found[0]
        stand_in = next(stand_ins)
        same = json.loads(found[0], strict=False) == stand_in
        return found[0] if same else encode_basestring(stand_in)

    return replaced


def _masked(found: re.Match[str]) -> str:
    """A word that is not public: only how long it is remains."""
    word = found[0]
    return word if word in _PUBLIC_WORDS else "x" * len(word)


def _is_packed(answer: Answer) -> bool:
    """Whether a body is compressed, so that nobody sees the names in it."""
    return (answer.header("content-encoding") or b"identity").lower() != b"identity"
