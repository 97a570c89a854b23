"""EVIDENCE: what real Azure answered, captured 2018 to 2025, comes out of `render` again."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventSource, EventStatus, EventType, ScopeKind
from tests.wire.documents import MAINTENANCE, REDEPLOY, RESTART, event, rendered

GOLDEN = Path(__file__).parent / "golden"
SIX = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]
EIGHT = [*SIX, "Description", "EventSource"]
NINE = [*EIGHT, "DurationInSeconds"]

PLATFORM, USER = EventSource.PLATFORM, EventSource.USER
STARTED = EventStatus.STARTED
FREEZE, PREEMPT = EventType.FREEZE, EventType.PREEMPT
REBOOT, REDEPLOYED = EventType.REBOOT, EventType.REDEPLOY


def at(*when: int) -> datetime:
    """An instant in UTC."""
    return datetime(*when, tzinfo=UTC)


def test_capture_1_preempt_scheduled_byte_for_byte():
    """`az vm simulate-eviction`, read at 2019-08-01: the whole document."""
    preempt = event(
        "A123BC45-1234-5678-AB90-ABCDEF123456",
        PREEMPT,
        resources=("myspotvm",),
        not_before=at(2021, 3, 16, 0, 58, 46),
        description="",
        source=PLATFORM,
    )

    document = rendered(preempt, version="2019-08-01", incarnation=1, kind=ScopeKind.STANDALONE)

    assert document == (GOLDEN / "capture_01_preempt_scheduled.json").read_bytes()


def test_capture_3_freeze_started_byte_for_byte():
    """A Freeze under way, read at 2019-08-01: the whole document, NotBefore blank."""
    freeze = event(
        "D3D9DFEC-1DCA-4B49-97AA-780E02F45DFE",
        FREEZE,
        STARTED,
        resources=("aks-nodepool1-21922338-vmss_47",),
        description=MAINTENANCE,
        source=PLATFORM,
    )

    document = rendered(
        freeze, version="2019-08-01", incarnation=208, kind=ScopeKind.PLACEMENT_GROUP
    )

    assert document == (GOLDEN / "capture_03_freeze_started.json").read_bytes()


# number: (api-version, incarnation, event as we hold it, keys in order, what the capture shows).
PARTS = {
    "2": (
        "2019-01-01",
        279,
        event(type=FREEZE, resources=("xxxx",), not_before=at(2019, 9, 26, 15, 15, 21)),
        SIX,
        {"EventStatus": "Scheduled", "NotBefore": "Thu, 26 Sep 2019 15:15:21 GMT"},
    ),
    "4": (
        "2019-08-01",
        213,
        event(
            "FA298C74-AE95-4154-8EBF-303EED382DB6",
            resources=("aks-nodepool1-21922338-vmss_39",),
            not_before=at(2021, 3, 30, 13, 39, 24),
        ),
        EIGHT,
        {"NotBefore": "Tue, 30 Mar 2021 13:39:24 GMT", "EventSource": "User"},
    ),
    "5": (
        "2020-07-01",
        2,
        event(
            "CA9C0DC4-E841-476D-94D5-9FC2FF983BCD",
            resources=("longevity-10gb-3h-master-db-node-eastus-2",),
            not_before=at(2023, 3, 16, 14, 1, 28),
        ),
        NINE,
        {"NotBefore": "Thu, 16 Mar 2023 14:01:28 GMT", "DurationInSeconds": -1},
    ),
    "6": (
        "2019-08-01",
        1,
        event("C37355DB-2C23-4195-90CA-1A712A85650C", EventType.TERMINATE),
        EIGHT,
        {"EventType": "Terminate", "EventStatus": "Scheduled"},
    ),
    "7": (
        "2020-07-01",
        1,
        event(
            "A9A902A0-B0EA-4E7C-B970-E734ECF66A35",
            REDEPLOYED,
            resources=("win-scheve-eus",),
            not_before=at(2024, 2, 21, 3, 8, 47),
            description=REDEPLOY,
        ),
        NINE,
        {"NotBefore": "Wed, 21 Feb 2024 03:08:47 GMT", "Description": REDEPLOY},
    ),
    "8": (
        "2020-07-01",
        2,
        event(
            "B2BC520E-BDA2-44A0-BF75-0C320524BB47",
            FREEZE,
            STARTED,
            resources=("aks-testspot-38041100-vmss_25",),
            description=MAINTENANCE,
            source=PLATFORM,
            duration_seconds=30,
        ),
        NINE,
        {"NotBefore": "", "DurationInSeconds": 30, "EventStatus": "Started"},
    ),
    "9, regular": (
        "2020-07-01",
        32,
        event(
            "3474C1DD-0917-49F4-85F7-84B9E366719B",
            FREEZE,
            STARTED,
            resources=("regular-node-30975042-vmss_6",),
            duration_seconds=6,
        ),
        NINE,
        {"NotBefore": "", "DurationInSeconds": 6},
    ),
    "9, spot": (
        "2020-07-01",
        2,
        event(
            "32504B35-D66B-4D0A-8C64-C9DDBBD0EA13",
            FREEZE,
            STARTED,
            resources=("spot-node-34525998-vmss_24",),
            duration_seconds=6,
        ),
        NINE,
        {"NotBefore": "", "DurationInSeconds": 6},
    ),
    "10": (
        "2020-07-01",
        2,
        event(
            "4CAEA225-A741-474D-A72E-428C86FCD853",
            resources=("flatcar-vm1",),
            not_before=at(2021, 7, 22, 4, 50, 17),
            description="",
        ),
        NINE,
        {"NotBefore": "Thu, 22 Jul 2021 04:50:17 GMT", "Description": "", "EventSource": "User"},
    ),
    "12": (
        "2017-08-01",
        1,
        event(
            "F3E6E2D2-E86A-47F0-AA8E-18918049A2B1",
            resources=("controlplane_0",),
            not_before=at(2019, 6, 30, 16, 22, 3),
        ),
        SIX,
        {"NotBefore": "Sun, 30 Jun 2019 16:22:03 GMT", "Resources": ["controlplane_0"]},
    ),
    "13": (
        "2020-07-01",
        1,
        event(
            type=FREEZE,
            resources=("WestNO_0", "WestNO_1"),
            not_before=at(2022, 4, 11, 22, 26, 58),
            source=PLATFORM,
            duration_seconds=5,
        ),
        NINE,
        {"Resources": ["WestNO_0", "WestNO_1"], "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT"},
    ),
    "14": (
        "2020-07-01",
        1,
        event(type=PREEMPT, not_before=at(2025, 2, 26, 10, 13, 13), description=""),
        NINE,
        {"NotBefore": "Wed, 26 Feb 2025 10:13:13 GMT", "DurationInSeconds": -1, "Description": ""},
    ),
    "15": (
        "2020-07-01",
        1,
        event(not_before=at(2024, 12, 6, 18, 9, 55)),
        NINE,
        {"NotBefore": "Fri, 06 Dec 2024 18:09:55 GMT", "Description": RESTART},
    ),
    "16": (
        "2020-07-01",
        1,
        event(
            "279D65BA-4C08-4BAD-9209-255F97338C32",
            resources=("forsen",),
            not_before=at(2024, 6, 19, 15, 26, 51),
        ),
        NINE,
        {"NotBefore": "Wed, 19 Jun 2024 15:26:51 GMT", "Resources": ["forsen"]},
    ),
    "18": (
        "2017-08-01",
        1,
        event(not_before=at(2018, 3, 12, 18, 18, 23)),
        SIX,
        {"NotBefore": "Mon, 12 Mar 2018 18:18:23 GMT"},
    ),
}


@pytest.mark.parametrize("number", PARTS)
def test_every_given_field_of_the_other_captures(number):
    """The keys are those of the version, in order, and what the capture gives is what we write."""
    version, incarnation, held, keys, given = PARTS[number]

    document = json.loads(rendered(held, version=version, incarnation=incarnation))
    (shown,) = document["Events"]

    assert list(document) == ["DocumentIncarnation", "Events"]
    assert document["DocumentIncarnation"] == incarnation
    assert list(shown) == keys
    assert shown["EventId"] == held.id
    assert shown["EventType"] == held.type
    assert shown["ResourceType"] == "VirtualMachine"
    assert shown["Resources"] == list(held.resources)
    assert {key: shown[key] for key in given} == given


def test_capture_6_truncated_terminate():
    """As far as the excerpt goes, the bytes are the same."""
    terminate = event(
        "C37355DB-2C23-4195-90CA-1A712A85650C", EventType.TERMINATE, resources=("aks-tom_0",)
    )

    assert rendered(terminate, version="2019-08-01", incarnation=1).startswith(
        b'{"DocumentIncarnation":1,"Events":[{"EventId":"C37355DB-2C23-4195-90CA-1A712A85650C",'
        b'"EventStatus":"Scheduled","EventType":"Terminate","ResourceType":"VirtualMachine",'
        b'"Resources":["aks-tom'
    )


def test_capture_10_nothing_before_and_after():
    """Before the first event and after the last the list is empty, and the number goes on."""
    assert rendered(incarnation=1) == b'{"DocumentIncarnation":1,"Events":[]}'
    assert rendered(incarnation=4) == b'{"DocumentIncarnation":4,"Events":[]}'


def test_capture_11_two_events_for_one_vm():
    """At 2017-08-01, two reboots of the same VM, in the order they were announced."""
    first = event(
        "28512AF7-C957-4500-9BC4-842D6FB531E4",
        resources=("sample_4",),
        not_before=at(2018, 1, 24, 21, 20, 44),
    )
    second = event(
        "A626E37F-793E-44E1-89B5-99AE0B96044C",
        resources=("sample_4",),
        not_before=at(2018, 1, 24, 21, 25, 44),
    )

    document = json.loads(rendered(first, second, version="2017-08-01", incarnation=192))

    assert document["DocumentIncarnation"] == 192
    assert [shown["EventId"] for shown in document["Events"]] == [first.id, second.id]
    assert document["Events"][0]["NotBefore"] == "Wed, 24 Jan 2018 21:20:44 GMT"
    assert {tuple(shown["Resources"]) for shown in document["Events"]} == {("sample_4",)}


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
def test_golden_files_have_no_newline_at_the_end(version):
    """Nothing follows the closing brace, in no version."""
    assert rendered(event(), version=version).endswith(b"}]}")
