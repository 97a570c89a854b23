"""Clients that are broken in one way each, and otherwise as right as examples/client.py.

python broken_clients.py NAME --interval 0.1 --timeout 1
"""

import http.client
import importlib.util
import json
import socket
import sys
import urllib.error
import urllib.parse
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Event

HERE = Path(__file__)
_FOUND = importlib.util.spec_from_file_location(
    "client", HERE.parents[2] / "examples" / "client.py"
)
correct = importlib.util.module_from_spec(_FOUND)
_FOUND.loader.exec_module(correct)
Client = correct.Client


class DiesOnEmptyBody(Client):
    def read(self, body):
        if not body:
            raise SystemExit("no document")
        return super().read(body)


class AcknowledgesForOthers(Client):
    def is_mine(self, event):  # noqa: ARG002 - that is what is broken
        return True


class TakesPartsOfNames(Client):
    def is_mine(self, event):
        return any(name.startswith(self.name) for name in event["Resources"])


class Hammers(Client):
    def run(self):
        while True:
            self.poll()


class SendsNoHeader(Client):
    def ask(self, path, body=None):
        with correct.DIRECT.open(self.url + path, body, self.timeout) as answer:
            return answer.read()


class GivesUpOn410(Client):
    def pause_after(self, error):
        if isinstance(error, urllib.error.HTTPError) and error.code == http.client.GONE:
            Event().wait()
        return super().pause_after(error)


class StopsAtStarted(Client):
    def take(self, shown):
        if any(event["EventStatus"] == "Started" for event in shown.values()):
            Event().wait()
        super().take(shown)


class KnowsOnlyTheFirst(Client):
    def take(self, shown):
        if not self.approved:
            super().take(shown)


class DiesOnNoNotBefore(Client):
    def is_mine(self, event):
        try:
            parsedate_to_datetime(event["NotBefore"])
        except ValueError:
            sys.exit("no date")
        return super().is_mine(event)


class ComparesIncarnations(Client):
    last = 0

    def read(self, body):
        incarnation = json.loads(body, strict=False)["DocumentIncarnation"] if body else 0
        if incarnation <= self.last:
            return self.known
        self.last = incarnation
        return super().read(body)


class ReadsStrictly(Client):
    def read(self, body):
        try:
            json.loads(body)
        except ValueError:
            sys.exit("no JSON")
        return super().read(body)


class WaitsForEver(Client):
    def __init__(self, url, interval, timeout):  # noqa: ARG002 - that is what is broken
        super().__init__(url, interval, None)


class AcknowledgesNothing(Client):
    def approve(self, names):
        pass


class AcknowledgesStarted(Client):
    def take(self, shown):
        for event in shown.values():
            event["EventStatus"] = "Scheduled"
        super().take(shown)


class AcknowledgesAgain(Client):
    def take(self, shown):
        super().take(shown)
        if shown:
            self.approve(sorted(shown))


class AcknowledgesWhatIsGone(Client):
    def take(self, shown):
        super().take(shown)
        if self.approved:
            self.approve(sorted(self.approved))


class AcknowledgesWhatIsNot(Client):
    def approve(self, names):
        super().approve([name[::-1] for name in names])


class BelievesInItsAcknowledgement(Client):
    def approve(self, names):
        self.approved.update(names)
        super().approve(names)


class IgnoresRetryAfter(Client):
    def pause_after(self, error):  # noqa: ARG002 - that is what is broken
        return self.interval


class DiesWithoutEndpoint(Client):
    def pause_after(self, error):
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
            sys.exit("refused")
        return super().pause_after(error)


class DiesOnErrors(Client):
    def pause_after(self, error):
        if getattr(error, "code", 0) >= http.client.INTERNAL_SERVER_ERROR:
            sys.exit("an error")
        return super().pause_after(error)


class TakesItsHostName(Client):
    def __init__(self, url, interval, timeout):
        super().__init__(url, interval, timeout)
        self.name = socket.gethostname()


class AsksAnOldVersion(Client):
    def ask(self, path, body=None):
        return super().ask(path.replace("2020-07-01", "2017-08-01"), body)


class KeepsOneConnection(Client):
    kept = None

    def ask(self, path, body=None):
        if self.kept is None:
            self.kept = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc)
            self.kept.connect()
            # As many libraries in C do, and this one does not unless told so.
            self.kept.auto_open = False
        self.kept.request("POST" if body else "GET", path, body, {"Metadata": "true"})
        return self.kept.getresponse().read()


class LooksAtTheFirstOnly(Client):
    def read(self, body):
        shown = super().read(body)
        return dict(list(shown.items())[:1])


class ApprovesFreezesOfOthers(Client):
    def is_mine(self, event):
        return super().is_mine(event) or event["EventType"] == "Freeze"


class ApprovesTheEndOfOthers(Client):
    def is_mine(self, event):
        return super().is_mine(event) or event["EventType"] in {"Preempt", "Terminate"}


class LooksAtTheFirstName(Client):
    def is_mine(self, event):
        return event["Resources"][0] == self.name


class LooksAtTheLastName(Client):
    def is_mine(self, event):
        return event["Resources"][-1] == self.name


class GetsAroundToOthers(Client):
    def __init__(self, url, interval, timeout):
        super().__init__(url, interval, timeout)
        self.looks = {}

    def is_mine(self, event):
        looks = self.looks[event["EventId"]] = self.looks.get(event["EventId"], 0) + 1
        return super().is_mine(event) or looks > 8


class AcknowledgesEachTypeOnce(Client):
    def take(self, shown):
        done = {event["EventType"] for name, event in shown.items() if name in self.approved}
        super().take(
            {
                name: event
                for name, event in shown.items()
                if name in self.approved or event["EventType"] not in done
            }
        )


class HammersAfterErrors(Client):
    def pause_after(self, error):  # noqa: ARG002 - that is what is broken
        return 0.0


class AsksOnlyForTheLatest(Client):
    def ask(self, path, body=None):
        return super().ask(path.replace("2020-07-01", "latest"), body)


class AsksForTheLatestEachTime(Client):
    def poll(self):
        try:
            self.ask(correct.EVENTS.replace("2020-07-01", "latest"))
        except urllib.error.HTTPError:
            super().poll()


class EndsAfterTwoPolls(Client):
    polls = 0

    def take(self, shown):
        super().take(shown)
        self.polls += 1
        if self.polls == 2:
            sys.exit()


BROKEN = {kind.__name__: kind for kind in Client.__subclasses__()}

if __name__ == "__main__":
    correct.main(BROKEN[sys.argv.pop(1)])
