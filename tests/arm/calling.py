"""What tests of Azure Resource Manager's front share: a service with that port, and who asks it."""

import http.client
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlencode, urlsplit

from fairnotice.arm.serving import Port, opened, opened_for_this_machine
from fairnotice.clock import SystemClock
from fairnotice.control.running import Entrance
from fairnotice.stores.memory import MemoryStore
from tests.control.calling import ANYWHERE, PATIENCE_SECONDS, serving
from tests.control.calling import _read as read_answer
from tests.waiting import until

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
GROUP = f"{SUBSCRIPTION}/resourceGroups/sample"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
DB = f"{COMPUTE}/virtualMachines/db"
WEB_0 = f"{COMPUTE}/virtualMachines/web-0"
WEB = f"{COMPUTE}/availabilitySets/web"
BATCH = f"{COMPUTE}/virtualMachineScaleSets/batch"
BATCH_0 = f"{BATCH}/virtualMachines/0"
SPOT = f"{COMPUTE}/virtualMachineScaleSets/spot"
VERSION = "api-version=2024-11-01"


class Asking:
    """A service, and the port at which Azure's tools ask it."""

    def __init__(self, served):
        self.served = served

    @property
    def fleet(self):
        return self.served.run.service.fleet

    def connection(self):
        """A connection to the port."""
        return http.client.HTTPConnection(*self.served.run.arm, timeout=PATIENCE_SECONDS)

    def call(self, method, path, body=None, query=VERSION, **headers):
        """One request to the port; a body that is not bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connection()
        try:
            connection.request(method, f"{path}?{query}" if query else path, body, names)
            return read_answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.call("POST", path, body, **more)

    def refused(self, status, code, method, path, body=None, **more):
        """A request that is refused so: its sentence."""
        answer = self.call(method, path, body, **more)
        assert (answer.status, answer.json["error"]["code"]) == (status, code), answer
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["error"]["message"]
        return answer.json["error"]["message"]

    def follow(self, answer):
        """What a long-running operation says of itself now."""
        url = answer.headers["azure-asyncoperation"]
        found = self.get(url.partition(str(self.served.run.arm))[2], query="")
        assert found.status == 200, found
        if found.json["status"] == "InProgress":
            # Without it az waits for half a minute before it asks again.
            assert found.headers["retry-after"] == "1"
        return found.json

    def events(self, vm):
        """The events that a VM reads."""
        return json.loads(self.served.look(vm))["Events"]

    def approve(self, vm):
        """The VM approves all that it reads."""
        for event in self.events(vm):
            self.served.post(f"/v1/events/{event['EventId']}/approve")

    def until(self, answer, status):
        """Wait until a long-running operation says so."""

        def over():
            found = self.follow(answer)
            return found if found["status"] != "InProgress" else None

        found = until(over, status)
        assert found["status"] == status, found
        return found


class AskingBySSL(Asking):
    """A service whose port has the certificate and keys that `up` makes, in this directory."""

    def __init__(self, served, directory):
        super().__init__(served)
        self.directory = directory
        self._trusted = ssl.create_default_context(cafile=directory / "ca.pem")

    @property
    def url(self):
        """As a tool is told it, and as access tokens have it for their audience."""
        return f"https://localhost:{self.served.run.arm.port}"

    def connection(self):
        return http.client.HTTPSConnection(
            *self.served.run.arm, timeout=PATIENCE_SECONDS, context=self._trusted
        )

    def sign_in(self, client, secret):
        """The access token of a service principal, as `az login --service-principal` gets it."""
        answer = self.try_to_sign_in(client, secret)
        assert answer.status == 200, answer
        return answer.json["access_token"]

    def try_to_sign_in(self, client, secret):
        """What a service principal is answered that signs in."""
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        body = urlencode({**form, "resource": f"{self.url}/"}).encode()
        kind = "application/x-www-form-urlencoded"
        return self.post("/adfs/oauth2/token", body, query="", Content_Type=kind)


@contextmanager
def asked_by_ssl(directory, store, clock=None, **more):
    """The same with TLS, where everybody has to sign in."""
    port = opened_for_this_machine(ANYWHERE, directory, clock or SystemClock())
    with serving(store, clock=clock, beside=port, auth=True, **more) as served:
        yield AskingBySSL(served, directory)


class Holding(MemoryStore):
    """A store whose commits wait while it is told so: what is asked then is decided together."""

    def __init__(self):
        super().__init__()
        self._opened, self._reached = threading.Event(), threading.Event()
        self._opened.set()

    def commit(self, epoch, after, changes):
        self._reached.set()
        assert self._opened.wait(PATIENCE_SECONDS)
        super().commit(epoch, after, changes)

    @contextmanager
    def holding(self, arm):
        """Whatever is asked in turn meanwhile, one after another, is answered behind it."""
        self._reached.clear()
        self._opened.clear()
        try:
            with ThreadPoolExecutor() as askers:
                askers.submit(arm.served.post, "/v1/nodes/node-5/cordon")
                assert self._reached.wait(PATIENCE_SECONDS)
                yield partial(self._in_turn, arm, askers)
                self._opened.set()
        finally:
            self._opened.set()

    @staticmethod
    def _in_turn(arm, askers, ask, *words):
        """What this will be answered; the next one is asked when the law has heard of this."""
        conductor = arm.served.run.conductor
        before = len(conductor._waiting)
        answer = askers.submit(ask, *words)
        until(lambda: len(conductor._waiting) > before, "what was asked")
        return answer


@contextmanager
def asked(store=None, **more):
    """A service of the sample fleet that Azure's tools may ask."""
    port = Port(ANYWHERE, Entrance())
    with serving(store, beside=opened(port), **more) as served:
        yield Asking(served)


def operation(answer, header):
    """Which one an answer names, whatever revision whoever asks for it has to know by then."""
    return urlsplit(answer.headers[header]).path


# ---- What is said ----


def notice(time, *, enable=True):
    """A body that asks for so much terminate notice."""
    profile = {"enable": enable} if time is None else {"enable": enable, "notBeforeTimeout": time}
    events = {"terminateNotificationProfile": profile}
    return {"properties": {"virtualMachineProfile": {"scheduledEventsProfile": events}}}


def policy(**words):
    """A body that asks for automatic approval."""
    said = {name: {"automaticallyApprove": word} for name, word in words.items()}
    return {"properties": {"scheduledEventsPolicy": said}}
