"""Rule 8: who listens, from when on, and when a scope counts as silent."""

from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.changes import EndpointChanged
from fairnotice.engine.commands import (
    Heard,
    HearEndpoint,
    JoinEndpoint,
    ReportServed,
    ReportUnserved,
    SeenBy,
    Tick,
)
from fairnotice.engine.effects import Matter, Subject
from fairnotice.engine.enabling import UNSERVED_TIMES_MAX
from fairnotice.model import Unserved
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB, Story

EVERY_SCOPE = (WEB, BATCH, SPOT, SHOP, DB)


def heard(story: Story, scope: str, **passed: float) -> ReportServed:
    """A VM of this scope was answered so long after the story began."""
    return ReportServed(heard=(Heard(scope, story.at(**passed)),))


# ---- Enabled ----


def test_rule_08_nobody_listens_at_first():
    """A new fleet has only disabled scopes."""
    story = Story(listening=())
    assert not any(story.scope(scope).enabled for scope in EVERY_SCOPE)


@pytest.mark.parametrize("scope", EVERY_SCOPE)
def test_rule_08_the_first_request_of_one_vm_enables_its_scope(scope):
    """One VM asks, its whole scope listens, and no other does."""
    story = Story(listening=())
    story.listen(scope)
    assert [other for other in EVERY_SCOPE if story.scope(other).enabled] == [scope]
    assert story.scope(scope).enabled_at == story.began


def test_rule_08_one_vm_that_asks_is_enough_for_all_of_its_scope():
    """web-2 asked; web-0's restart is announced."""
    story = Story(listening=())
    story.listen(WEB)
    story.restart_vm("web-0")
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])


def test_rule_08_a_second_request_right_after_changes_nothing():
    """Clients ask every second; that is not written down every second."""
    story = Story()
    story.advance(seconds=1)
    story.unchanged(heard(story, DB, seconds=1))
    story.advance(minutes=58)
    story.unchanged(heard(story, DB, minutes=58))


def test_rule_08_a_scope_nobody_knows_is_nothing():
    """A VM was deleted while its last request was on the way."""
    Story().unchanged(ReportServed(heard=(Heard("vm:gone", Story().began),)))


def test_rule_08_several_requests_in_one_report():
    """Endpoints gather: the same scope twice, two scopes at once."""
    story = Story(listening=())
    story.listen(DB, DB, WEB)
    assert story.changes() == ["ScopeEnabled", "ScopeEnabled"]


# ---- Disabled after 24 to 25 hours without ----


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_08_disabled_after_24_to_25_hours_without_a_request(timing):
    """VM db asked once. A day later it still counts as listening, after 25 hours it does not."""
    story = Story(timing=timing)
    story.advance(hours=23, minutes=59)
    assert story.scope(DB).enabled
    story.advance(hours=1, minutes=1)
    assert not story.scope(DB).enabled


@pytest.mark.parametrize("last_minutes", [0, 1, 30, 59, 60, 61, 119])
def test_rule_08_wherever_in_the_hour_the_last_request_was(last_minutes):
    """Requests every minute, the last one at last_minutes: from there on it is 24 to 25 hours."""
    story = Story()
    for minute in range(1, last_minutes + 1):
        story.advance_to(story.at(minutes=minute))
        story.listen(DB)
    story.advance_to(story.at(minutes=last_minutes, hours=24) - timedelta(seconds=1))
    assert story.scope(DB).enabled
    story.advance_to(story.at(minutes=last_minutes, hours=25))
    assert not story.scope(DB).enabled


def test_rule_08_later_requests_keep_it_enabled():
    """One request every 20 hours is enough, for a week."""
    story = Story()
    for _ in range(8):
        story.advance(hours=20)
        story.listen(DB)
        assert story.scope(DB).enabled
    assert story.scope(DB).enablings == 1
    assert not story.scope(WEB).enabled


def test_rule_08_each_scope_is_silent_for_itself():
    """VM db goes on asking, web does not."""
    story = Story()
    story.advance(hours=20)
    story.listen(DB)
    story.advance(hours=10)
    assert story.scope(DB).enabled
    assert not story.scope(WEB).enabled


def test_rule_08_a_look_too_soon_disables_nobody():
    """Whoever ticks early is told when to come again."""
    story = Story()
    story.advance(hours=23)
    tick = Tick(subjects=(Subject(Matter.SCOPE, DB),))
    assert story.unchanged(tick).effects[0].at > story.clock.wall()


def test_rule_08_a_look_at_a_scope_that_is_silent_or_gone_is_harmless():
    """Ticks come late; nothing is there to be done."""
    story = Story(listening=())
    subjects = (Subject(Matter.SCOPE, DB), Subject(Matter.SCOPE, "vm:gone"))
    story.unchanged(Tick(subjects=subjects))


def test_rule_08_then_its_incarnation_starts_over():
    """Incarnation 4 yesterday; silent for 25 hours; the next request reads 1."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    story.done()
    assert story.shows(DB) == (4, [])
    story.advance(hours=25)
    assert not story.scope(DB).enabled
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    assert story.scope(DB).enablings == 2
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_08_silent_again_and_enabled_again():
    """The hours count anew from each enabling."""
    story = Story()
    story.advance(hours=26)
    story.listen(DB)
    story.advance(hours=23, minutes=59)
    assert story.scope(DB).enabled
    story.advance(hours=1, minutes=1)
    assert not story.scope(DB).enabled


def test_rule_08_a_silent_scope_gets_no_event():
    """Nobody has asked for 25 hours, and nobody is told."""
    story = Story()
    story.advance(hours=25)
    story.restart_vm("db")
    assert story.shows(DB) == (1, [])
    assert len(story.under_way) == 1


# ---- A live event ----


def test_rule_08_a_scope_with_a_live_event_is_not_disabled():
    """Announced for the third day, unheard since the first: db keeps its event until it is gone."""
    story = Story()
    story.restart_vm("db", not_before=story.at(hours=72))
    for hours in (25, 26, 48, 71):
        story.advance_to(story.at(hours=hours))
        assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance_to(story.at(hours=72))
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.done()
    assert story.shows(DB) == (4, [])
    story.advance(hours=1)
    assert not story.scope(DB).enabled


def test_rule_08_nor_one_whose_vms_the_event_does_not_name():
    """web-0's restart keeps all of web enabled, and it is still one document."""
    story = Story()
    story.restart_vm("web-0", not_before=story.at(hours=48))
    story.advance(hours=30)
    assert story.scope(WEB).enabled
    assert not story.scope(DB).enabled


# ---- Unknown is not silent ----


def test_rule_08_time_in_which_nobody_was_served_does_not_count():
    """No endpoint served db for 5 hours: it is silent after 29 to 30 hours."""
    story = Story()
    story.advance(hours=10)
    story.tell(ReportUnserved(scopes=(DB,), seconds=5 * 3600))
    story.advance_to(story.at(hours=28, minutes=59))
    assert story.scope(DB).enabled
    assert not story.scope(WEB).enabled
    story.advance_to(story.at(hours=30))
    assert not story.scope(DB).enabled


def test_rule_08_unserved_times_add_up():
    """Three hours and then four: seven."""
    story = Story()
    story.advance(hours=5)
    story.tell(ReportUnserved(scopes=(DB,), seconds=3 * 3600))
    story.advance(hours=15)
    story.tell(ReportUnserved(scopes=(DB,), seconds=4 * 3600))
    story.advance_to(story.at(hours=30, minutes=59))
    assert story.scope(DB).enabled
    story.advance_to(story.at(hours=32))
    assert not story.scope(DB).enabled


def test_rule_08_an_unserved_time_counts_once_however_often_it_is_told():
    """From 2 to 7, told by two endpoints in three pieces, one of them twice: five hours."""
    story = Story()
    story.advance(hours=10)
    for since, until in ((5, 7), (2, 4), (5, 7), (3, 6)):
        told = ReportUnserved(
            scopes=(DB,), seconds=(until - since) * 3600, until=story.at(hours=until)
        )
        story.tell(told)
        story.advance(minutes=20)
    story.unchanged(told)
    assert story.scope(DB).unserved == (Unserved(story.at(hours=2), story.at(hours=7)),)
    story.advance_to(story.at(hours=29, minutes=59))
    assert story.scope(DB).enabled
    story.advance_to(story.at(hours=30))
    assert not story.scope(DB).enabled
    assert story.scope(DB).unserved == ()


def test_rule_08_of_an_unserved_time_counts_what_follows_the_last_request():
    """From 1 to 6 and from 8 to 9; that db asked at 5 is told last: its day has two hours more."""
    story = Story()
    story.advance(hours=10)
    for seconds, until in ((5 * 3600, story.at(hours=6)), (3600, story.at(hours=9))):
        story.tell(ReportUnserved(scopes=(DB,), seconds=seconds, until=until))
    story.tell(ReportServed(heard=(Heard(DB, story.at(hours=5)),)))
    story.unchanged(ReportUnserved(scopes=(DB,), seconds=3600, until=story.at(hours=5)))
    story.advance_to(story.at(hours=31, minutes=59))
    assert story.scope(DB).enabled
    story.advance_to(story.at(hours=32))
    assert not story.scope(DB).enabled


def test_rule_08_very_many_unserved_times_are_not_kept_apart():
    """Ten seconds of each minute: the first are known one by one, the rest as one long time."""
    story = Story()
    story.advance(hours=1)
    for minute in range(1, 41):
        told = ReportUnserved(scopes=(DB,), seconds=10, until=story.at(minutes=minute))
        story.tell(told)
    unserved = story.scope(DB).unserved
    assert len(unserved) == UNSERVED_TIMES_MAX
    assert unserved[0] == (story.at(seconds=50), story.at(minutes=1))
    assert unserved[-1].until == story.at(minutes=40)


def test_rule_08_an_unserved_time_before_the_last_request_is_forgotten():
    """Five hours were excused; then db asked, and its day begins anew, without them."""
    story = Story()
    story.tell(ReportUnserved(scopes=(DB,), seconds=5 * 3600))
    story.advance(hours=10)
    story.listen(DB)
    story.advance(hours=25)
    assert not story.scope(DB).enabled


def test_rule_08_unserved_time_of_scopes_that_do_not_listen_is_nothing():
    """Neither a disabled scope nor one that is gone has a silence to excuse."""
    story = Story(listening=())
    story.unchanged(ReportUnserved(scopes=(DB, "vm:gone"), seconds=3600))


def test_rule_08_downtime_of_the_process_does_not_count():
    """The service is down from 10:00 to 40:00; db has its day of silence all the same."""
    story = Story(listening=(DB,))
    story.advance(hours=10)
    story.listen(DB)
    story.clock.advance(hours=30)
    story.restart()
    assert story.scope(DB).enabled
    story.advance(hours=23, minutes=59)
    assert story.scope(DB).enabled
    story.advance(hours=1, minutes=1)
    assert not story.scope(DB).enabled


def test_rule_08_a_takeover_while_endpoints_serve_is_no_downtime():
    """Another process takes over after 20 silent hours; after 25 db is silent."""
    story = Story()
    story.advance(hours=20)
    story.restart(takeover=True)
    story.advance(hours=3, minutes=59)
    assert story.scope(DB).enabled
    story.advance(hours=1, minutes=1)
    assert not story.scope(DB).enabled


def test_rule_08_a_scope_behind_an_endpoint_that_is_not_heard_of_is_not_silent():
    """node-1 is cut off for two days, and db polls there; nobody can know, so db is not hit."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    story.advance(hours=48)
    assert story.scope(DB).enabled
    assert not story.scope(SPOT).enabled
    story.restart_vm("db")
    assert story.only(DB).scheduled


def test_rule_08_what_the_endpoint_says_when_it_is_back_decides():
    """Back after 48 hours: db asked an hour ago, and is heard; web-1, beside it, was silent."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    story.advance(hours=48)
    story.tell(heard(story, DB, hours=47))
    story.tell(HearEndpoint(node="node-1"))
    story.advance(hours=1)
    assert story.scope(DB).enabled
    assert not story.scope(WEB).enabled


def test_rule_08_one_endpoint_of_several_that_is_away_is_enough_not_to_know():
    """Of web's three nodes node-2 is not heard of; the other two report every half hour."""
    story = Story()
    for node in ("node-0", "node-1", "node-2"):
        story.tell(JoinEndpoint(node=node))
    for _ in range(60):
        story.advance(minutes=30)
        story.ask(HearEndpoint(node="node-0"))
        story.ask(HearEndpoint(node="node-1"))
    assert story.scope(WEB).enabled
    assert not story.scope(DB).enabled


def test_rule_08_that_an_endpoint_was_heard_of_is_written_down_every_half_hour():
    """What it says in between changes nothing; nor does one that nobody has let join."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    story.advance(minutes=29)
    story.unchanged(HearEndpoint(node="node-1"))
    story.unchanged(HearEndpoint(node="node-0"))
    story.advance(minutes=1)
    story.tell(HearEndpoint(node="node-1"))
    assert story.fleet.endpoints["node-1"].heard_at == story.at(minutes=30)


def test_rule_08_an_endpoint_of_an_older_database_has_not_been_heard_of():
    """Its row has no instant yet: unknown, until it says something."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    old = story.fleet.endpoints["node-1"]._replace(heard_at=None)
    story.fleet.apply(EndpointChanged(story.at(), old))
    story.advance(hours=48)
    assert story.scope(DB).enabled


# ---- Reports that are late or wrong ----


def test_rule_08_a_report_that_comes_late_counts_from_the_request():
    """VM db asked at 00:00, which is reported at 05:00: silent from 24 to 25 hours after 00:00."""
    story = Story(listening=())
    story.advance(hours=5)
    story.tell(heard(story, DB, hours=0))
    assert story.scope(DB).enabled
    story.advance_to(story.at(hours=25))
    assert not story.scope(DB).enabled


def test_rule_08_an_endpoint_whose_clock_is_ahead_does_not_keep_a_scope_enabled():
    """A request of 02:00 is reported with the date of next week; 25 hours later db is silent."""
    story = Story()
    story.advance(hours=2)
    story.tell(heard(story, DB, days=7))
    story.advance(hours=25)
    assert not story.scope(DB).enabled


def test_rule_08_a_request_older_than_the_last_one_changes_nothing():
    """Reports of two endpoints cross."""
    story = Story()
    story.advance(hours=10)
    story.listen(DB)
    story.unchanged(heard(story, DB, hours=5))


# ---- First seen (rule 26) ----


def test_rule_08_who_was_served_is_written_down_once():
    """VM db was shown its restart at 00:01; told again, it is not written again."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.advance(minutes=1)
    seen = ReportServed(seen=(SeenBy(event, "db", story.at(minutes=1)),))
    story.tell(seen)
    assert story.event(event).seen == (("db", story.at(minutes=1)),)
    assert story.shows(DB)[0] == 2
    story.advance(minutes=1)
    story.unchanged(ReportServed(seen=(SeenBy(event, "db", story.at(minutes=2)),)))


def test_rule_08_an_event_nobody_knows_was_seen_by_nobody():
    """It was forgotten while the report was on its way."""
    story = Story()
    story.unchanged(ReportServed(seen=(SeenBy("F020BA2E", "db", story.began),)))


def test_rule_26_what_a_vm_saw_is_written_down_when_it_is_gone():
    """Of its own end, and of another VM's; of another scope, and by whoever never was, not."""
    story = Story()
    elsewhere = story.restart_vm("db").events[0]
    other = story.restart_vm("batch_1").events[0]
    own = story.delete("batch_0").events[0]
    story.approve("batch_3", own)
    story.done("batch_0")
    assert "batch_0" not in story.fleet.vms
    story.advance(minutes=1)

    told = [(other, "batch_0"), (own, "batch_0"), (elsewhere, "batch_0"), (other, "nobody")]
    story.tell(ReportServed(seen=tuple(SeenBy(*one, story.began) for one in told)))

    assert [one.vm for one in story.event(other).seen] == ["batch_0"]
    assert [one.vm for one in story.event(own).seen] == ["batch_0"]
    assert story.event(elsewhere).seen == ()


def test_rule_26_what_a_node_did_to_a_vm_says_nothing_of_other_scopes():
    """A VM that was paused with others and then deleted saw its own scope alone."""
    story = Story()
    story.maintain("node-0")
    story.notice_passes()
    story.done(*[impact.vm for impact in story.fleet.impacts.values() if impact.live])
    web = story.restart_vm("web-0").events[0]
    story.approve("batch_3", story.delete("batch_0").events[0])
    story.done("batch_0")

    story.unchanged(ReportServed(seen=(SeenBy(web, "batch_0", story.began),)))
