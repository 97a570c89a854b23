"""The pages without a browser: what they say, what they are sent with, and what stays live."""

import gzip
import json
import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from fairnotice.clock import SystemClock
from fairnotice.portal.now_page import SUMMARY, NowPage
from fairnotice.portal.site import Site, Viewer
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import Failing
from tests.control.calling import restarted
from tests.portal.browsing import HOSTILE, hostile_fleet, served

PAGES = ("/", "/fleet", "/vms/web-0", "/nodes/node-0", "/rollouts", "/history")


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def busy():
    """A service in which something is announced, and a rollout runs."""
    with served() as there:
        there.event = restarted(there)
        there.rollout = there.post("/v1/rollouts", {"nodes": ["node-1", "node-2"]}).json["id"]
        yield there


def page_of(there, path):
    """A page as it is sent."""
    answer = there.get(path)
    assert answer.status == 200, answer
    return answer.body.decode()


@pytest.mark.parametrize("path", [*PAGES, "/events/EVENT", "/rollouts/ROLLOUT"])
def test_a_page_can_be_read_without_scripts(busy, path):
    """Whole, with nothing inline, nothing from elsewhere, and in no frame."""
    path = path.replace("EVENT", busy.event).replace("ROLLOUT", busy.rollout)
    answer = busy.get(path)
    assert answer.status == 200, answer
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    for closed in ("default-src 'none'", "form-action 'self'", "base-uri 'none'"):
        assert closed in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    html = answer.body.decode()
    for tag, attributes in Elements(html).found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "/").startswith(("/", "#", "?")), attributes
    assert re.search(r"<script(?! type=\"module\" src=)", html) is None
    assert "<h1>" in html


def test_now_says_what_is_announced(busy):
    """The event as a bar and as a row, with what may be done."""
    html = page_of(busy, "/")
    assert f'id="event:{busy.event}"' in html
    assert 'id="lane:availability-set:web"' in html
    assert f'data-act="/v1/events/{busy.event}/approve"' in html


def test_now_says_who_may_approve(busy):
    """Any VM of the scope, also one that is not concerned."""
    html = page_of(busy, "/")
    assert "waits for any of the 3 VMs of availability-set:web to approve" in html


def test_it_is_not_quiet_while_something_is_done_of_which_nobody_is_told(there):
    """Nor where a node has failed: a failure has no notice."""
    fleet = {"node": [{"name": "n"}, {"name": "m"}], "vm": [{"name": "lone", "node": "n"}]}
    assert there.call("PUT", "/v1/fleet", fleet).status == 200
    html = page_of(there, "/")
    assert "so none will be told" in html
    assert "All quiet" in html
    standing = standing_of(there)
    later = {"not_before": (SystemClock().wall() + timedelta(hours=1)).isoformat()}
    (done,) = there.post("/v1/vms/lone/restart", later).json["operations"]
    (message,) = messages(there, "/", 1, **standing)
    assert f"untold:{done}" in {part[0] for part in message["parts"] if part[3]}
    html = page_of(there, "/")
    assert "nobody is told: there is no event of it" in html
    assert "<b>1</b> of which nobody is told" in html
    assert "<b>1</b> of 1 VMs concerned" in html
    there.post("/v1/nodes/m/fail")
    html = page_of(there, "/")
    assert "<b>1</b> node failed or unreachable" in html
    assert "All quiet" not in html


def test_who_listens_is_counted_again_though_nothing_else_happens():
    """It is not counted at every change: what was left out is made up for."""
    clock = ManualClock()
    with served(clock=clock) as there:
        fleet = {"node": [{"name": "n"}], "vm": [{"name": "lone", "node": "n"}]}
        assert there.call("PUT", "/v1/fleet", fleet).status == 200
        page = NowPage(Site(there.run), Viewer())
        assert "<b>0</b> of 1 scopes listen" in page.part(SUMMARY).html
        there.look("lone")
        there.post("/v1/nodes/n/cordon")
        there.inside(page.refresh())
        assert SUMMARY not in page.passing()
        clock.advance(seconds=3)
        there.inside(page.refresh())
        assert SUMMARY in page.passing()
        assert "<b>1</b> of 1 scopes listen" in page.part(SUMMARY).html
        assert SUMMARY not in page.passing()


def test_what_ended_last_is_the_first_that_is_just_over(there):
    """In whatever order they were announced."""
    first, second = restarted(there), restarted(there, "db")
    for event in (second, first):
        there.post(f"/v1/events/{event}/cancel")
    over = page_of(there, "/").partition("Just over")[2]
    assert over.index(f"/events/{first}") < over.index(f"/events/{second}")


def test_for_whom_an_approved_event_waits_and_that_a_failure_had_no_notice(there):
    """An operation starts when all of its scopes agree; a node that fails asks nobody."""
    announced = there.post("/v1/nodes/node-3/maintain").json["events"]
    assert len(announced) == 2
    there.post(f"/v1/events/{announced[0]['id']}/approve")
    assert f"; waits for {announced[1]['scope']} too" in page_of(there, "/")
    there.post("/v1/nodes/node-5/fail")
    html = page_of(there, "/")
    assert "without notice" in html
    assert "its notice is over" not in html


def test_what_a_rollout_has_announced_is_not_under_way(there):
    """And its nodes are in the order in which they are taken."""
    there.post("/v1/nodes/node-0/maintain")
    rollout = there.post("/v1/rollouts", {"nodes": ["node-1", "node-5"]}).json["id"]
    nodes = there.get(f"/v1/rollouts/{rollout}").json["nodes"]
    assert [one["status"] for one in nodes] == ["pending", "live"]
    html = page_of(there, f"/rollouts/{rollout}")
    assert "<b>0</b> under way" in html
    assert "<b>1</b> announced" in html
    listed = html.partition("in the order in which")[2]
    assert listed.index(nodes[1]["node"]) < listed.index(nodes[0]["node"])
    assert "is-started" not in listed


def test_a_document_is_not_shown_as_read_where_a_fault_changes_it(there):
    """The VM reads something else."""
    there.post("/v1/faults", {"fault": "slow", "vm": "db"})
    there.post("/v1/faults", {"fault": "two-events", "vm": "db"})
    said = "Without the faults that are on, with which the VM reads something else: two-events."
    assert said in page_of(there, "/vms/db")
    assert said not in page_of(there, "/vms/web-0")


def test_only_where_nothing_is_at_stake_it_is_proposed_to_try_something():
    """In production a quiet fleet is left alone."""
    with served() as there:
        assert b"Try it" in there.get("/").body
        there.run.prefix_allowed = False
        quiet = there.get("/").body
        assert b"All quiet" in quiet
        assert b"data-act=" not in quiet


def test_the_document_is_shown_in_any_version(busy):
    """As the VM reads it."""
    assert "DurationInSeconds" in page_of(busy, "/vms/web-0?api-version=2020-07-01")
    assert "DurationInSeconds" not in page_of(busy, "/vms/web-0?api-version=2019-01-01")


def test_a_vm_is_found_by_a_part_of_its_name(busy):
    """In whatever letters."""
    found = (
        page_of(busy, "/fleet?find=FRONTEND").partition("found-vms")[2].partition("</section>")[0]
    )
    assert re.findall(r'href="/vms/(\w+)"', found) == ["FrontEnd_IN_0", "FrontEnd_IN_1"]


def test_of_many_those_come_first_of_which_there_is_something_to_say(there, monkeypatch):
    """Only those are stops of the keyboard, and their scopes are shown with their VMs."""
    monkeypatch.setattr("fairnotice.portal.fleet_page.DENSE_FROM_VMS", 5)
    there.post("/v1/nodes/node-5/maintain")
    elements = Elements(page_of(there, "/fleet")).found
    order = {
        attributes["id"]: attributes["data-order"]
        for tag, attributes in elements
        if tag == "article"
    }
    assert order["node:node-5"] < order["node:node-0"]
    folded = {one["id"] for _, one in elements if one.get("class") == "scope-row folded"}
    assert "scope:availability-set:web" in folded
    assert "scope:scale-set:spot:0" not in folded
    calm = [one for _, one in elements if one.get("class") == "chip is-calm"]
    assert {one.get("tabindex") for one in calm} == {"-1"}
    told = [one for _, one in elements if one.get("class") == "chip is-scheduled"]
    assert {one.get("tabindex") for one in told} == {None}


def test_of_a_large_fleet_only_what_matters_is_drawn(busy, monkeypatch):
    """Else the picture would be of nothing."""
    monkeypatch.setattr("fairnotice.portal.fleet_page.LARGE_FROM_VMS", 5)
    html = page_of(busy, "/fleet")
    assert 'id="node:node-0"' in html
    assert 'id="node:node-4"' not in html
    assert 'id="scope:availability-set:web"' in html
    assert 'id="scope:cloud-service:shop"' not in html


def test_history_is_searched(busy):
    """By VM, type, status and time."""
    row = f'id="past:{busy.event}"'
    assert row in page_of(busy, "/history?vm=WEB-0&type=Reboot&since=2020-01-01T00:00")
    for nothing in ("vm=db", "type=Freeze", "status=Canceled", "until=2020-01-01T00:00:00"):
        assert row not in page_of(busy, f"/history?{nothing}")
    assert row in page_of(busy, "/history?since=nonsense")


@pytest.mark.parametrize("path", ["/vms/web-9", "/nodes/x", "/events/x", "/rollouts/x"])
def test_what_is_not_there_is_said_with_what_may_be_meant(busy, path):
    """Not found, in words."""
    answer = busy.get(path)
    assert answer.status == 404
    assert b"There is no" in answer.body
    assert (b"web-0" in answer.body) == (path == "/vms/web-9")


def test_whoever_mistypes_is_shown_a_page_and_a_program_is_not(busy):
    """With all that is on every page; nothing of the API looks like one."""
    page = busy.get("/nope", Accept="text/html,*/*;q=0.8")
    assert page.status == 404
    assert b"There is nothing at /nope." in page.body
    assert b'aria-label="Pages"' in page.body
    assert busy.get("/nope").problem["type"].endswith(":no-address")
    assert busy.get("/v1/nope", Accept="text/html").problem["status"] == 404
    assert busy.get("/v1/vms/db/restart", Accept="text/html").problem["status"] == 405
    assert busy.post("/nope", Accept="text/html").problem["status"] == 404


@pytest.mark.parametrize("query", ["/?span=", "/history?before=", "/live?page=/nope&revision="])
def test_a_number_that_nobody_wrote_is_none(busy, query):
    """However long it is."""
    assert busy.get(query + "9" * 5_000).status in (200, 404)
    assert busy.get("/live?page=http://[").status == 404


def test_lines_to_copy_do_what_they_say(busy):
    """They ask this very service, and approve the very event that waits."""
    html = unescape(page_of(busy, "/vms/web-0"))
    assert f"FAIRNOTICE_URL=http://{busy.run.control} fairnotice as web-0 -- COMMAND" in html
    assert f'{{"EventId": "{busy.event}"}}' in html
    assert '{"EventId": "EVENT-ID"}' in unescape(page_of(busy, "/vms/spot_0"))


def test_a_store_that_cannot_be_written_to_is_on_every_page():
    """With what it says itself."""
    store = Failing()
    with served(store=store) as there:
        assert b"Nothing can be recorded" not in there.get("/").body
        store.broken = True
        assert there.post("/v1/vms/db/restart").status == 503
        for path in PAGES:
            assert "<strong>Nothing can be recorded:</strong>" in page_of(there, path), path
        store.broken = False


def test_a_fault_is_on_every_page():
    """Whoever looks knows that the endpoint misbehaves on purpose."""
    with served() as there:
        there.post("/v1/faults", {"fault": "slow", "vm": "db", "seconds": 3})
        for path in PAGES:
            html = page_of(there, path)
            assert "1 fault is on:" in html, path
            assert "<code>slow</code>" in html, path


def test_styles_and_scripts_are_kept_for_good_by_an_address_that_changes(busy):
    """Zipped where it is taken; the first page is small."""
    html = page_of(busy, "/")
    size = len(busy.get("/", Accept_Encoding="gzip").body)
    (build,) = set(re.findall(r"/static/(\w+)/", html))
    for name in ("portal.css", "main.js", "clock.js", "live.js", "acting.js", "copying.js"):
        answer = busy.get(f"/static/{build}/{name}", Accept_Encoding="gzip")
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(answer.body) == busy.get(f"/static/{build}/{name}").body
        size += len(answer.body)
    assert size < 50_000
    assert "immutable" not in busy.get("/static/old/portal.css").headers.get("cache-control", "")
    assert busy.get("/static/x/..%2Fsite.py").status == 404


# ---- What stays live ----


def messages(there, page, count, **standing):
    """The first so many messages to this page."""
    connection = there.connection()
    asked = "".join(f"&{name}={quote(str(value))}" for name, value in standing.items())
    connection.request("GET", f"/live?page={quote(page)}{asked}")
    stream = connection.getresponse()
    assert stream.status == 200
    found = []
    while len(found) < count:
        line = stream.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
    stream.close()
    connection.close()
    return found


def standing_of(there, path="/"):
    """Where the page is that was asked for."""
    attributes = dict(re.findall(r'data-(\w+)="([^"]*)"', page_of(there, path)))
    return {name: attributes[name] for name in ("revision", "process", "state")}


def test_whoever_stays_is_sent_what_changes_and_no_more(there):
    """The new event's row and lane; not the other's."""
    first = restarted(there, "db")
    standing = standing_of(there)
    second = restarted(there)
    (message,) = messages(there, "/", 1, **standing)
    sent = {part[0]: part[3] for part in message["parts"]}
    assert not message["whole"]
    assert message["revision"] > int(standing["revision"])
    assert f"event:{second}" in sent
    assert "lane:availability-set:web" in sent
    assert f"event:{first}" not in sent


def test_what_is_gone_is_sent_as_gone(there):
    """An event that is canceled leaves the page."""
    event = restarted(there)
    standing = standing_of(there)
    there.post(f"/v1/events/{event}/cancel")
    (message,) = messages(there, "/", 1, **standing)
    assert [f"event:{event}", "", "", None] in message["parts"]
    assert ["lane:availability-set:web", "", "", None] in message["parts"]


@pytest.mark.parametrize("wrong", [{"process": "another"}, {"revision": "-1"}, {"revision": "x"}])
def test_a_page_of_another_process_is_sent_all(there, wrong):
    """It was drawn by a service that has been restarted since."""
    event = restarted(there)
    (message,) = messages(there, "/", 1, **(standing_of(there) | wrong))
    assert message["whole"]
    assert {"summary", "axis", f"event:{event}"} <= {part[0] for part in message["parts"]}


def test_of_very_many_the_next_are_shown(there, monkeypatch):
    """And the one after them, when one of them is gone."""
    monkeypatch.setattr("fairnotice.portal.now_page.LANES_SHOWN", 1)
    monkeypatch.setattr("fairnotice.portal.now_page.EVENTS_SHOWN", 1)
    second, first = restarted(there, "db"), restarted(there)
    # Whichever second they begin in: their scopes say who is first where it is the same.
    if (
        there.get(f"/v1/events/{second}").json["not_before"]
        < (there.get(f"/v1/events/{first}").json["not_before"])
    ):
        first, second = second, first
    html = page_of(there, "/")
    assert (f'id="event:{first}"' in html, f'id="event:{second}"' in html) == (True, False)
    assert html.count('class="lane"') == 1
    assert "1 more than are shown" in html
    standing = standing_of(there)
    there.post(f"/v1/events/{first}/cancel")
    (message,) = messages(there, "/", 1, **standing)
    sent = {part[0]: part[3] for part in message["parts"]}
    assert sent[f"event:{first}"] is None
    assert sent[f"event:{second}"] is not None


def test_a_connection_lives_though_nothing_happens(there):
    """So that the page knows a lost one."""
    first, second = messages(there, "/fleet", 2, **standing_of(there, "/fleet"))
    assert second["parts"] == []
    assert second["now"] > first["now"]


def test_there_is_nothing_live_where_no_page_is(there):
    """Nor where a page's VM is gone."""
    assert there.get("/live?page=/nowhere").status == 404
    assert there.get("/live?page=/vms/web-9").status == 410


# ---- Names that mean harm ----


def test_hostile_names_are_only_text():
    """In every page, in every attribute, in the stream too."""
    with served() as there:
        assert there.call("PUT", "/v1/fleet", hostile_fleet()).status == 200
        for name in HOSTILE.values():
            there.look(quote(name, safe=""))
            assert there.post(f"/v1/vms/{quote(name, safe='')}/restart").status == 202
        paths = ["/", "/fleet", "/history", "/rollouts"]
        paths += [f"/vms/{quote(name, safe='')}" for name in HOSTILE.values()]
        paths += [f"/nodes/{quote(name, safe='')}" for name in HOSTILE.values()]
        for path in paths:
            html = page_of(there, path)
            (message,) = messages(there, path, 1)
            assert message["whole"], path
            found = Elements(html).found
            assert [tag for tag, _ in found].count("script") == 1, path
            assert "img" not in [tag for tag, _ in found], path
            assert not any("onerror" in attributes for _, attributes in found), path


# ---- What only the journal knows ----


def test_history_goes_on_where_the_fleet_has_forgotten(monkeypatch):
    """A day after they are over, events are in the journal alone; they are found all the same."""
    monkeypatch.setattr("fairnotice.portal.history_pages.READ_TOGETHER", 1)
    monkeypatch.setattr("fairnotice.portal.history_pages.READS_MAX", 1)
    clock = ManualClock()
    with served(clock=clock) as there:
        old, new = restarted(there, "web-0"), restarted(there, "db")
        for event in (old, new):
            there.post(f"/v1/events/{event}/cancel")

        async def days_pass():
            clock.advance(days=2)
            await there.run.conductor.tick()

        there.inside(days_pass())
        assert there.run.service.fleet.events == {}
        first = page_of(there, "/history?status=Canceled")
        assert (f'id="past:{new}"' in first, f'id="past:{old}"' in first) == (True, False)
        further = unescape(re.search(r'href="(/history\?[^"]*before=\d+)"', first)[1])
        second = page_of(there, further)
        assert (f'id="past:{new}"' in second, f'id="past:{old}"' in second) == (False, True)
        assert "announced: Reboot of web-0" in page_of(there, f"/events/{old}")
