"""Metrics: every commit is counted for what it is, and the papers in deploy/ name what exists."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest

from fairnotice.cli import main
from fairnotice.control.certificates import Certificates, Pair
from fairnotice.control.metrics import Tally, exposition
from fairnotice.control.serving import Serving
from fairnotice.control.webhook_metrics import of_webhooks
from fairnotice.deliveries.delivering import Delivering
from fairnotice.deliveries.webhooks import Webhooks
from fairnotice.endpoint import metrics as endpoint_metrics
from fairnotice.endpoint.link import Link
from fairnotice.endpoint.passing import Passing
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import Unreported
from fairnotice.engine.commands import Cancel, FailNode, ReportServed, SeenBy
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import Role
from tests.cli.serves import certificate
from tests.conductor.orchestra import (
    USER,
    Failing,
    approve,
    conducting,
    restart,
    settled,
    simulated,
)
from tests.house import ROOT

OPERATOR = Requester("olga", Role.OPERATOR)


@asynccontextmanager
async def counting(store=None, driver=None, clock=None, **more):
    """A conductor, its tally and its clock; whoever owns the clock lets time pass."""
    clock = clock or ManualClock()
    more = {"waking": False, **more}
    async with conducting(store, driver, clock, **more) as conductor:
        yield conductor, Tally(conductor, clock), clock


def values(tally, worker=None):
    """Every sample by its name and labels."""
    lines = exposition(tally, worker).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def announced(conductor, name="one", vm="web-0"):
    """A user restarts this VM; the id of the event."""
    decision = await conductor.submit(restart(name, vm))
    return decision.answer.events[0]


def reboots(shown, status):
    """How many Reboot events are in this status, and how many have been."""
    labels = f'{{type="Reboot",status="{status}"}}'
    return shown[f"fairnotice_events{labels}"], shown[f"fairnotice_events_total{labels}"]


def test_an_event_is_counted_where_it_is():
    """Scheduled, then Started and over; a status that was left is left, what happened stays."""

    async def story():
        async with counting() as (conductor, tally, _):
            event = await announced(conductor)
            assert reboots(values(tally), "Scheduled") == (1, 1)
            await conductor.submit(approve(event))
            await settled()
            shown = values(tally)
            assert reboots(shown, "Scheduled") == (0, 1)
            assert reboots(shown, "Started") == (0, 1)
            assert reboots(shown, "Completed") == (1, 1)
            labels = '{kind="restart",status="Completed"}'
            assert shown[f"fairnotice_operations_total{labels}"] == 1

    asyncio.run(story())


def test_notice_given_is_a_histogram():
    """Approved after seven seconds: between five and ten."""

    async def story():
        async with counting() as (conductor, tally, clock):
            event = await announced(conductor)
            clock.advance(seconds=7)
            await conductor.submit(approve(event))
            shown = values(tally)
            bucket = 'fairnotice_notice_given_seconds_bucket{{type="Reboot",le="{}"}}'
            assert [shown[bucket.format(le)] for le in (5, 10, 604800, "+Inf")] == [0, 1, 1, 1]
            assert shown['fairnotice_notice_given_seconds_sum{type="Reboot"}'] == 7
            assert shown['fairnotice_notice_given_seconds_count{type="Reboot"}'] == 1

    asyncio.run(story())


def test_a_failure_gives_no_notice():
    """Nothing to Started: counted once, in the lowest bucket."""

    async def story():
        async with counting() as (conductor, tally, _):
            await conductor.submit(FailNode(id="f", by=OPERATOR, node="node-3"))
            shown = values(tally)
            assert shown['fairnotice_events_total{type="Redeploy",status="Started"}'] == 1
            assert shown['fairnotice_events_total{type="Redeploy",status="Scheduled"}'] == 0
            assert shown['fairnotice_notice_given_seconds_bucket{type="Redeploy",le="0"}'] == 1

    asyncio.run(story())


def test_approvals_before_not_before_are_told_apart():
    """One before; a second of the same event is none."""

    async def story():
        async with counting() as (conductor, tally, _):
            event = await announced(conductor)
            await conductor.submit(approve(event))
            await conductor.submit(approve(event))
            shown = values(tally)
            assert shown['fairnotice_approvals_total{type="Reboot"}'] == 1
            assert shown['fairnotice_approvals_before_not_before_total{type="Reboot"}'] == 1

    asyncio.run(story())


def test_who_never_looked_is_counted_when_it_is_over():
    """Two VMs are rebooted; one of them had seen its event."""

    async def story():
        async with counting() as (conductor, tally, clock):
            seen = await announced(conductor, "one", "web-0")
            unseen = await announced(conductor, "two", "db")
            await conductor.submit(ReportServed(seen=(SeenBy(seen, "web-0", clock.wall()),)))
            left = values(tally)['fairnotice_event_unseen_not_before_seconds{type="Reboot"}']
            assert left == 15 * 60
            clock.advance(minutes=14, seconds=10)
            left = values(tally)['fairnotice_event_unseen_not_before_seconds{type="Reboot"}']
            assert left == 50
            await conductor.submit(approve(seen))
            await conductor.submit(Cancel(target=unseen, by=USER))
            await settled()
            shown = values(tally)
            assert 'fairnotice_event_unseen_not_before_seconds{type="Reboot"}' not in shown
            assert shown['fairnotice_vms_never_saw_event_total{type="Reboot"}'] == 0
            again = await announced(conductor, "three", "web-1")
            await conductor.submit(approve(again))
            await settled()
            assert values(tally)['fairnotice_vms_never_saw_event_total{type="Reboot"}'] == 1

    asyncio.run(story())


def test_what_hangs_in_started_gets_older():
    """The age of the oldest, and 0 again when it is over."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_hangs("web-0")
        age = 'fairnotice_event_started_age_seconds{type="Reboot"}'
        async with counting(driver=driver, clock=clock) as (conductor, tally, _):
            assert values(tally)[age] == 0
            event = await announced(conductor)
            await conductor.submit(approve(event))
            clock.advance(minutes=5)
            assert values(tally)[age] == 300
            driver.let_go("web-0")
            await settled()
            assert values(tally)[age] == 0

    asyncio.run(story())


def test_a_failed_operation_is_counted():
    """The driver fails, and nothing is retried."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_fails("web-0")
        async with counting(driver=driver, clock=clock) as (conductor, tally, _):
            await conductor.submit(approve(await announced(conductor)))
            await settled()
            failed = 'fairnotice_operations_total{kind="restart",status="Failed"}'
            assert values(tally)[failed] == 1

    asyncio.run(story())


def test_a_store_that_is_away_is_said():
    """Nothing can be recorded, and then it can again."""

    async def story():
        store = Failing()
        async with counting(store) as (conductor, tally, _):
            assert values(tally)["fairnotice_journal_recording"] == 1
            store.broken = True
            with pytest.raises(Exception, match="the disk is full"):
                await announced(conductor)
            assert values(tally)["fairnotice_journal_recording"] == 0
            store.broken = False
            await announced(conductor)
            shown = values(tally)
            assert shown["fairnotice_journal_recording"] == 1
            assert shown["fairnotice_journal_revision"] == conductor.fleet.revision
            assert shown["fairnotice_journal_commits_total"] == 1

    asyncio.run(story())


class Slow(MemoryStore):
    """A commit takes three seconds of the test's clock, once it is given one."""

    clock = None

    def commit(self, epoch, after, changes):
        super().commit(epoch, after, changes)
        if self.clock is not None:
            self.clock.advance(seconds=3)


def test_the_journal_lags_as_long_as_a_commit_takes():
    """From the decision to the journal."""

    async def story():
        store = Slow()
        async with counting(store) as (conductor, tally, clock):
            store.clock = clock
            await announced(conductor)
            assert values(tally)["fairnotice_journal_lag_seconds"] == 3

    asyncio.run(story())


def test_a_start_counts_what_is_in_force():
    """A new life knows the events it finds, and what is long over is forgotten."""

    async def story():
        store = MemoryStore()
        clock = ManualClock()
        async with counting(store, clock=clock) as (conductor, _, _):
            event = await announced(conductor)
        async with counting(store, clock=clock, declare=False) as (conductor, tally, _):
            assert reboots(values(tally), "Scheduled") == (1, 0)
            await conductor.submit(approve(event))
            await settled()
            assert reboots(values(tally), "Completed") == (1, 1)
            clock.advance(days=1, hours=1)
            await conductor.tick()
            assert reboots(values(tally), "Completed") == (0, 1)

    asyncio.run(story())


# ---- The text, and the papers ----


def delivering_of(conductor, clock):
    """What delivers to webhooks, before there is one."""
    of = {"subscription": "s", "location": "l"}
    return Delivering(conductor, clock, Webhooks(conductor, **of), **of)


async def everything(pair):
    """The text of a service over TLS in which something is announced and unseen."""
    async with counting() as (conductor, tally, clock):
        worker = Serving(conductor, clock).worker()
        await announced(conductor)
        more = (*Certificates(pair, clock).metrics(), *of_webhooks(delivering_of(conductor, clock)))
        return exposition(tally, worker, more)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """All that is shown to Prometheus."""
    return asyncio.run(everything(Pair(*certificate(tmp_path_factory.mktemp("tls")))))


def test_the_text_is_prometheus_own(text):
    """Each metric once, with help and type before its samples; numbers as they are."""
    described = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE)
    assert len(described) == len(set(described))
    assert described == re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE)
    sample = r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?\d+(\.\d+)?(e[+-]\d+)?'
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(sample, line), line
    assert text.endswith("\n")


def names_in(paper):
    """The metrics that a paper names, without what a histogram puts behind its name."""
    named = set(re.findall(r"\bfairnotice_\w+", paper))
    return {re.sub(r"_given_seconds_(bucket|sum|count)$", "_given_seconds", one) for one in named}


def test_what_an_alert_says_to_type_can_be_typed():
    """Whoever is woken at night copies it."""
    said = (ROOT / "deploy" / "alert-rules.yml").read_text("utf-8")
    commands = re.findall(
        r"fairnotice ((?:[a-z-]+ )+[a-z-]+(?: ID)?(?: --[a-z]+(?: \d+m)?)?)", said
    )
    assert len(commands) > 5
    for command in commands:
        main.parser(command.split()).parse_args(command.split())


async def of_an_endpoint(folder):
    """What the endpoint of a node shows of itself."""
    clock = ManualClock()
    saved = Saved(folder, "node-0", clock)
    link = Link(Passing("node-0", ("http://127.0.0.1:1",)), clock, Unreported(None), saved)
    return endpoint_metrics.exposition(link, "node-0", [""])


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "alert-rules.yml"])
def test_every_metric_that_a_paper_names_exists(text, name, tmp_path):
    """A dashboard that shows nothing, or an alert that never fires, is found."""
    text += asyncio.run(of_an_endpoint(tmp_path))
    named = names_in((ROOT / "deploy" / name).read_text("utf-8"))

    assert named
    assert named <= set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def test_every_metric_of_the_platform_is_on_the_dashboard(text):
    """What is counted is shown."""
    shown = names_in((ROOT / "deploy" / "grafana-dashboard.json").read_text("utf-8"))
    counted = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)

    assert [one for one in counted if "_metadata_" not in one and one not in shown] == []


def test_the_dashboard_is_json_with_panels_that_do_not_overlap():
    """Grafana takes it as it is."""
    panels = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text("utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)
