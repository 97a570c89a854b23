"""Which api-versions there are, and what asking for one of them comes to.

Scheduled events and the instance document have two different lists on Azure
(MicrosoftDocs/azure-docs#46856), so a version may be known and still not be there.
"""

import json
from enum import IntEnum

SCHEDULED_EVENTS: tuple[str, ...] = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)

# The list of the Azure Instance Metadata Service page.
_INSTANCE_ON_AZURE = (  # noqa: SIM905 - one version a line reads worse
    "2017-03-01 2017-04-02 2017-08-01 2017-10-01 2017-12-01 2018-02-01 2018-04-02 2018-10-01 "
    "2019-02-01 2019-03-11 2019-04-30 2019-06-01 2019-06-04 2019-08-01 2019-08-15 2019-11-01 "
    "2020-06-01 2020-07-15 2020-09-01 2020-10-01 2020-12-01 2021-01-01 2021-02-01 2021-03-01 "
    "2021-05-01 2021-10-01 2021-11-01 2021-11-15 2021-12-13 2023-07-01 2023-11-15 2024-03-15 "
    "2024-07-17 2025-04-07"
).split()

INSTANCE: tuple[str, ...] = tuple(sorted({*_INSTANCE_ON_AZURE, *SCHEDULED_EVENTS}))

# OpenShift asks for 2024-07-09 first and takes a 404, and nothing but a 404, as "use 2020-07-01".
_PROBED = "2024-07-09"

NOT_THERE: frozenset[str] = frozenset({*_INSTANCE_ON_AZURE, _PROBED} - set(SCHEDULED_EVENTS))

# What a 400 recommends, the newest first: Azure names three.
NEWEST: tuple[str, ...] = SCHEDULED_EVENTS[:-4:-1]
NEWEST_INSTANCE: tuple[str, ...] = INSTANCE[:-4:-1]


class Verdict(IntEnum):
    """What asking for a version comes to: the status of the answer."""

    SERVED = 200
    INVALID = 400
    NOT_THERE = 404


def verdict(version: str | None) -> Verdict:
    """What scheduled events answer to this api-version; None stands for no api-version."""
    if version in SCHEDULED_EVENTS:
        return Verdict.SERVED
    return Verdict.NOT_THERE if version in NOT_THERE else Verdict.INVALID


def instance_verdict(version: str | None) -> Verdict:
    """What the instance document answers to this api-version: it is served or invalid."""
    return Verdict.SERVED if version in INSTANCE else Verdict.INVALID


def versions_document() -> bytes:
    """The body of GET /metadata/versions, oldest first as on Azure."""
    return json.dumps({"apiVersions": INSTANCE}, separators=(",", ":")).encode("ascii")
