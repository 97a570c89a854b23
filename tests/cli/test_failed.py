"""What could not be done to a VM reads so, although VMs are shown that their event is over."""

from fairnotice.clock import SystemClock
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from tests.cli.typed import typed
from tests.control.calling import serving
from tests.waiting import until


def test_an_event_says_that_its_impact_failed():
    """In the list, by itself and when it is approved; its status stays the law's."""
    clock = SystemClock()
    driver = SimulatedDriver(clock, durations=AT_ONCE)
    driver.next_fails("db", "no power")
    with serving(clock=clock, driver=driver) as served:
        url = f"http://{served.run.control}"
        (event,) = served.post("/v1/vms/db/redeploy").json["events"]
        typed("event", "approve", event["id"], url=url)

        def over():
            return served.get(f"/v1/events/{event['id']}").json["gone_at"] is not None

        until(over)
        found = served.get(f"/v1/events/{event['id']}").json
        assert (found["status"], found["failed"]) == ("Completed", ["db"])
        for line in (("list", "--all"), ("show", event["id"]), ("history", event["id"])):
            assert "Completed, 1 impact failed" in typed("event", *line, url=url).out
