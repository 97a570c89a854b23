"""What an impact leaves on its domain, in the metadata of libvirt's XML.

Every impact has an element of its own, with a namespace of its own: libvirtd adds, replaces and
removes one without touching the others, so that two control planes do not overwrite each other.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

from fairnotice.drivers.driver import Report
from fairnotice.words import ImpactKind, Outcome

log = logging.getLogger(__name__)

# The prefix that libvirt writes; the namespaces count.
PREFIX = "fairnotice"
IMPACT = "urn:fairnotice:libvirt:impact:"
EPOCH = "urn:fairnotice:libvirt:epoch:"
DEFINITION = "urn:fairnotice:libvirt:definition:"
# On a running domain, until it ends.
MARK = "urn:fairnotice:libvirt:mark:"
# On a running domain that an impact has made to end with its guest: what its owner has chosen.
POWEROFF = "urn:fairnotice:libvirt:poweroff:1"
# On a domain whose place on its node was given up.
PLACE = "urn:fairnotice:libvirt:place:1"
# On a domain that was put on its node: since when it is how the VM is, and by which impact.
MOVED = "urn:fairnotice:libvirt:moved:1"

# How far an impact has come. What each means for whoever finds it is in deeds.py.
BEGUN = "begun"
FREEZING = "freezing"
FROZEN = "frozen"
ASKING = "asking"
RESETTING = "resetting"
RESET = "reset"
HANDED_OVER = "handed over"
LEAVING = "leaving"
STAYING = "staying"
MOVING = "moving"
RETURNING = "returning"
ENDED = "ended"


# By so much what comes after another is later, whatever the clocks say.
A_MOMENT = timedelta(microseconds=1)


class Record(NamedTuple):
    """An impact as its domain remembers it."""

    key: str
    vm: str
    kind: ImpactKind
    epoch: int
    # Later than that of every earlier impact on the VM, whatever the clocks say.
    begun_at: datetime
    # When a pause ends, and until when a guest is asked politely.
    until: datetime
    # When the law gives up on it.
    limit_at: datetime
    target: str = ""
    # Where the VM is when it begins; empty where that node is surely down, or there is none.
    source: str = ""
    # Whether the VM's node starts it with itself; held back while the VM moves.
    autostart: bool = False
    # How long a pause was announced to take, and how long the law has patience.
    pause_seconds: float = 0.0
    limit_seconds: float = 600.0
    phase: str = BEGUN
    outcome: Outcome = Outcome.UNDER_WAY
    reason: str = ""
    # Which domain it is about; empty where none was seen, or where a version before has written it.
    uuid: str = ""

    def is_about(self, uuid: str) -> bool:
        """Whether this domain is meant; what is deleted is not the next one of its name."""
        return self.kind is not ImpactKind.DELETE or self.uuid in ("", uuid)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.phase == ENDED

    @property
    def report(self) -> Report:
        """As a driver says it."""
        return Report(self.outcome, self.reason)


def impact_uri(key: str) -> str:
    """The namespace of this key's element."""
    return IMPACT + quote(key, safe="")


def mark_uri(key: str) -> str:
    """The namespace of this key's mark."""
    return MARK + quote(key, safe="")


def written(record: Record) -> str:
    """The element."""
    fields = {
        name: value.isoformat() if isinstance(value, datetime) else str(value)
        for name, value in record._asdict().items()
    }
    # What libvirt says may be what QEMU has said in colours; XML has no such characters.
    said = fields["reason"].split()
    fields["reason"] = "".join(one if one.isprintable() else "?" for one in " ".join(said))
    return ET.tostring(ET.Element("impact", fields), encoding="unicode")


def read(text: str) -> Record:
    """The same, read; ValueError where somebody else has written it."""
    fields = dict(ET.fromstring(text).attrib)  # noqa: S314 - libvirtd wrote it
    try:
        return Record(
            key=fields["key"],
            vm=fields["vm"],
            kind=ImpactKind(fields["kind"]),
            epoch=int(fields["epoch"]),
            begun_at=instant(fields["begun_at"]),
            until=instant(fields["until"]),
            limit_at=instant(fields["limit_at"]),
            target=fields["target"],
            source=fields.get("source", ""),
            autostart=fields.get("autostart") == str(True),
            pause_seconds=float(fields.get("pause_seconds", 0)),
            limit_seconds=float(fields.get("limit_seconds", 0)),
            phase=fields["phase"],
            outcome=Outcome(fields["outcome"]),
            reason=fields["reason"],
            uuid=fields.get("uuid", ""),
        )
    except KeyError as error:
        raise ValueError(f"an impact without {error}") from error


def carried_on(record: Record, epoch: int, now: datetime) -> Record:
    """The same in the hands of whoever leads now; the law has as much patience with each anew."""
    if epoch == record.epoch:
        return record
    limit_at = max(record.limit_at, now + timedelta(seconds=record.limit_seconds))
    return record._replace(epoch=epoch, limit_at=limit_at)


def instant(text: str) -> datetime:
    """As it was written, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


class Moved(NamedTuple):
    """Since when a domain is its VM; the latest counts, and others are left from before."""

    at: datetime = datetime.min.replace(tzinfo=UTC)
    by: str = ""


def written_moved(moved: Moved) -> str:
    """The element."""
    fields = {"at": moved.at.isoformat(), "by": moved.by}
    return ET.tostring(ET.Element("moved", fields), encoding="unicode")


def moved_in(xml: str) -> Moved:
    """What this domain's XML says of that; one that was never moved is the earliest."""
    for element in elements(xml, MOVED):
        try:
            return Moved(instant(element.attrib["at"]), element.attrib["by"])
        except (KeyError, ValueError) as error:
            log.warning("since when a domain is its VM is passed over: %s", error)
    return Moved()


def records_in(xml: str) -> list[Record]:
    """Every impact that this domain's XML remembers; one that is damaged is passed over."""
    found = []
    for element in elements(xml, IMPACT):
        try:
            found.append(read(ET.tostring(element, encoding="unicode")))
        except ValueError as error:
            log.warning("what a domain remembers of an impact is passed over: %s", error)
    return found


def epochs_in(xml: str) -> list[int]:
    """Every epoch that this domain's XML has seen."""
    return [int(one.attrib["number"]) for one in elements(xml, EPOCH)]


def elements(xml: str, namespace: str) -> list[ET.Element]:
    """Those of a domain's metadata whose namespace begins so."""
    metadata = ET.fromstring(xml).find("metadata")  # noqa: S314 - libvirtd wrote it
    if metadata is None:
        return []
    return [one for one in metadata if one.tag.startswith("{" + namespace)]
