"""What `doctor` asks a control plane: who leads, who listens, and what waits for whom."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from fairnotice.cli.findings import Finding, fine, noted, wrong
from fairnotice.cli.instants import from_api
from fairnotice.cli.remote import Remote
from fairnotice.cli.reports import SILENT, in_a_word
from fairnotice.errors import FairnoticeError
from fairnotice.words import NodeState

# Who follows knows within a second where the journal ends.
LAG_SECONDS_MAX = 3.0
# So many names are enough to see what is the matter.
NAMES_SHOWN = 5
_AWAY = {
    NodeState.UNREACHABLE: (
        "{name} cannot be reached, so nothing is put or started there. Look at it; once it is "
        "surely switched off: fairnotice node fail {name}"
    ),
    NodeState.FAILED: "{name} has failed. Once it is repaired: fairnotice node uncordon {name}",
}

Health = dict[str, Any]


def cloud(remote: Remote, health: Health, now: datetime) -> Iterator[Finding]:
    """All that can be asked with this token; what is for others only is left out."""
    sees_all = "metadata" in health
    parts = [_fleet(remote)]
    if sees_all:
        parts = [_leader(health), *parts, _nodes(remote)]
        parts += [_endpoints(remote, health, now), _held(remote, now)]
        if health["metadata"]:
            parts.append(_faults(remote))
    for part in parts:
        try:
            yield from part
        except FairnoticeError as error:
            yield wrong("control plane", str(error))
            return
    if not sees_all:
        sentence = "Who leads, faults and endpoints were not looked at"
        yield noted("token", f"{sentence}: that needs a token that may see all of the cloud.")


def _leader(health: Health) -> Iterator[Finding]:
    if not health["leader"]:
        return
    lag = health["lag_seconds"]
    if health["leading"]:
        yield fine("leader", f"This one leads, in epoch {health['epoch']}.")
    elif lag > LAG_SECONDS_MAX:
        sentence = f"{health['leader']} leads, and this one has not known for {lag:.0f} s"
        yield wrong("leader", f"{sentence} what was recorded. Its log says why.")
    else:
        yield fine("leader", f"{health['leader']} leads, and this one follows.")


def _fleet(remote: Remote) -> Iterator[Finding]:
    part: Any = remote.get("v1", "vms", limit=1)
    scopes: list[Any] = remote.everything("scopes")["items"]
    if not part["items"]:
        yield noted("fleet", "There are no VMs. Declare some: fairnotice fleet apply FILE")
        return
    silent = [scope["name"] for scope in scopes if not scope["enabled"]]
    if silent:
        sentence = f"In {len(silent)} of {len(scopes)} scopes no VM has asked for its document"
        yield noted("fleet", f"{sentence} within a day, so none there is told of events.")
    else:
        yield fine("fleet", f"VMs listen in all of {len(scopes)} scopes.")


def _nodes(remote: Remote) -> Iterator[Finding]:
    nodes: list[Any] = remote.everything("nodes")["items"]
    away = [node for node in nodes if node["state"] in _AWAY]
    for node in away[:NAMES_SHOWN]:
        yield wrong("nodes", _AWAY[node["state"]].format(name=node["name"]))
    if len(away) > NAMES_SHOWN:
        yield wrong("nodes", f"{len(away) - NAMES_SHOWN} more are like that: fairnotice node list")
    cordoned = [node["name"] for node in nodes if node["state"] == NodeState.CORDONED]
    if cordoned:
        yield noted("nodes", f"Nothing is put on {_some(cordoned)}: cordoned.")
    elif nodes and not away:
        yield fine("nodes", f"All {len(nodes)} are in service.")


def _endpoints(remote: Remote, health: Health, now: datetime) -> Iterator[Finding]:
    nodes: list[Any] = remote.everything("nodes")["items"]
    told: list[Any] = remote.everything("endpoints")["items"]
    silent = [one["node"] for one in told if in_a_word(one, now) == SILENT]
    if silent:
        sentence = f"Nothing is heard of the endpoint of {_some(silent)}, and events wait for it"
        yield wrong("endpoints", f"{sentence}. Look there: systemctl status fairnotice-endpoint")
    elif told:
        yield fine("endpoints", f"Those of {len(told)} of {len(nodes)} nodes report.")
    bare = [node["name"] for node in nodes if node["vms"] and not node["endpoint"]]
    if bare and not health["metadata"]:
        sentence = f"Nobody answers the VMs on {_some(bare)}: no endpoint has joined from there"
        yield wrong("endpoints", f"{sentence}, and this control plane has no table [metadata].")


def _held(remote: Remote, now: datetime) -> Iterator[Finding]:
    events: list[Any] = remote.everything("events", status="Scheduled")["items"]
    for event in events:
        if event["unconfirmed"] and from_api(event["not_before"]) <= now:
            nodes = _some(event["unconfirmed"])
            sentence = f"{event['type']} of {_some(event['resources'])} is held: not confirmed by"
            remedy = f"Mend the endpoint there, or: fairnotice event release {event['id'][:8]}"
            yield wrong("events", f"{sentence} {nodes}. {remedy}")


def _faults(remote: Remote) -> Iterator[Finding]:
    """What the endpoint is made to do wrong: good to know before a client is blamed."""
    on = [fault["id"] for fault in remote.everything("faults")["items"]]
    if on:
        sentence = f"The endpoint misbehaves on purpose: {', '.join(on)}."
        yield noted("faults", f"{sentence} End it: fairnotice fault clear")
    else:
        yield fine("faults", "None is on.")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
