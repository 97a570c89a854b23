"""WIRE.md, sections 4 and 6: which versions there are, and what asking for one comes to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.wire.versions import (
    INSTANCE,
    NEWEST,
    NEWEST_INSTANCE,
    NOT_THERE,
    SCHEDULED_EVENTS,
    Verdict,
    instance_verdict,
    verdict,
    versions_document,
)

# WIRE.md, section 6, as it stands there.
SECTION_6 = """
2017-03-01 2017-04-02 2017-08-01 2017-10-01 2017-12-01 2018-02-01 2018-04-02 2018-10-01 2019-02-01
2019-03-11 2019-04-30 2019-06-01 2019-06-04 2019-08-01 2019-08-15 2019-11-01 2020-06-01 2020-07-15
2020-09-01 2020-10-01 2020-12-01 2021-01-01 2021-02-01 2021-03-01 2021-05-01 2021-10-01 2021-11-01
2021-11-15 2021-12-13 2023-07-01 2023-11-15 2024-03-15 2024-07-17 2025-04-07
""".split()  # noqa: SIM905 - as it stands in WIRE.md


def test_scheduled_events_have_seven_versions():
    """Oldest first; each is served."""
    assert len(SCHEDULED_EVENTS) == 7
    assert list(SCHEDULED_EVENTS) == sorted(SCHEDULED_EVENTS)
    assert {verdict(version) for version in SCHEDULED_EVENTS} == {Verdict.SERVED}


@pytest.mark.parametrize(
    "version",
    [None, "", "latest", "{latest}", "2020-07-1", "2020-07-01 ", "2020-07-02", "2030-01-01", "v1"],
)
def test_absent_or_unknown_is_400(version):
    """No version, a word, or a date that never was one."""
    assert verdict(version) == 400


@pytest.mark.parametrize("version", sorted({*SECTION_6} - {*SCHEDULED_EVENTS}))
def test_a_version_that_scheduled_events_do_not_have_is_404(version):
    """The metadata service knows it, scheduled events are not in it."""
    assert verdict(version) == 404


def test_the_version_that_openshift_probes_is_404():
    """It takes 404, and nothing else, as "use 2020-07-01"."""
    assert verdict("2024-07-09") == 404
    assert "2024-07-09" in NOT_THERE


@given(st.text())
def test_any_text_has_a_verdict(version):
    """Nothing is served that is not one of the seven."""
    assert (verdict(version) is Verdict.SERVED) == (version in SCHEDULED_EVENTS)


def test_the_instance_document_has_its_own_versions_and_those_of_scheduled_events():
    """All of section 6, and the seven."""
    assert {*INSTANCE} == {*SECTION_6, *SCHEDULED_EVENTS}
    assert {instance_verdict(version) for version in INSTANCE} == {Verdict.SERVED}
    assert instance_verdict("2024-07-09") is Verdict.INVALID
    assert instance_verdict(None) is Verdict.INVALID


def test_the_newest_are_named_newest_first():
    """Three of each list."""
    assert NEWEST == ("2020-07-01", "2019-08-01", "2019-04-01")
    assert NEWEST_INSTANCE == ("2025-04-07", "2024-07-17", "2024-03-15")


def test_versions_are_listed_in_azures_shape():
    """`apiVersions`, sorted, compact."""
    document = versions_document()

    assert document.startswith(b'{"apiVersions":["2017-03-01","2017-04-02","2017-08-01",')
    assert json.loads(document)["apiVersions"] == sorted({*SECTION_6, *SCHEDULED_EVENTS})
