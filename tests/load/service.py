"""A control plane and an endpoint, as an operator runs them: by their commands and files."""

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import Self

import psutil

from tests.load.fleets import VMS_IN_SET
from tests.ports import own_port

COMMAND = Path(sys.executable).with_name("fairnotice")
LIMIT_SECONDS = 60.0
HOST = "127.0.0.1"

SERVE = """
timing = "dev"
[store]
url = "{store}"
[control]
listen = "{control}"
[driver]
kind = "simulated"
"""
ENDPOINT = """
node = "{node}"
control_planes = ["http://{control}"]
token_file = "{token}"
state_directory = "{state}"
workers = {workers}
[metadata]
listen = "{metadata}"
[metrics]
listen = "{metrics}"
"""

# Nobody sets it: it is waited for.
PAUSE = Event()


class Service:
    """Both processes, in a folder of their own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._store = f"sqlite:{folder / 'load.db'}"
        self._control, self.metadata, self._metrics = (f"{HOST}:{own_port()}" for _ in range(3))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._token = self._new_token("load", "--role", "admin")
        config = SERVE.format(store=self._store, control=self._control)
        self._start("serve", config)
        self._until(lambda: self._status("/readyz") == 200)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
            process.wait(LIMIT_SECONDS)

    def start_endpoint(self, node: str) -> None:
        """Serve metadata to the VMs of this node."""
        body = {"name": "endpoint", "role": "endpoint", "node": node}
        token = self._folder / "endpoint.token"
        token.write_text(self.ask("POST", "/v1/tokens", body)["secret"], "ascii")
        state = self._folder / "endpoint"
        state.mkdir()
        config = ENDPOINT.format(
            node=node,
            control=self._control,
            token=token,
            state=state,
            workers=self._workers,
            metadata=self.metadata,
            metrics=self._metrics,
        )
        self._start("endpoint", config)
        self._until(lambda: self._joined(node))

    def _joined(self, node: str) -> bool:
        found = self.ask("GET", "/v1/endpoints")["items"]
        return any(one["node"] == node and one["connected"] for one in found)

    def _start(self, command: str, config: str) -> None:
        file = self._folder / f"{command}.toml"
        file.write_text(config, "utf-8")
        line = [COMMAND, command, "--config", file]
        with (self._folder / f"{command}.log").open("wb") as log:
            self._processes[command] = subprocess.Popen(line, stderr=log, stdout=log)  # noqa: S603

    def _new_token(self, *options: str) -> str:
        line = [COMMAND, "token", "create", *options, "--store", self._store]
        made = subprocess.run(line, check=True, capture_output=True)  # noqa: S603 - our own line
        return made.stdout.decode().strip()

    def _until(self, holds) -> None:
        ends_at = time.perf_counter() + LIMIT_SECONDS
        while time.perf_counter() < ends_at:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError((self._folder / f"{name}.log").read_text()[-2000:])
            try:
                if holds():
                    return
            except OSError:
                pass
            PAUSE.wait(0.1)
        raise RuntimeError("it took too long")

    # ---- Asking ----

    def _status(self, path: str) -> int:
        return self._exchange("GET", path, None)[0]

    def ask(self, method: str, path: str, body: object = None) -> dict:
        """What the control plane answers."""
        status, answer = self._exchange(method, path, body)
        if status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {status} {answer!r}")
        return json.loads(answer)

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._control, timeout=LIMIT_SECONDS)
        headers = {"Authorization": f"Bearer {self._token}"}
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def apply(self, fleet: dict[str, object]) -> None:
        """Declare the fleet."""
        self.ask("PUT", "/v1/fleet", fleet)

    def events(self) -> list[dict]:
        """Every event of the last day."""
        found, after = [], ""
        while after is not None:
            part = self.ask("GET", f"/v1/events?limit=1000&after={after}")
            found += part["items"]
            after = part["next"]
        return found

    def polling_by_scope(self, vms: int) -> dict[str, set[int]]:
        """Numbers of the VMs that poll, by their scope."""
        found: dict[str, set[int]] = {}
        for number in range(vms):
            found.setdefault(f"availability-set:set-{number // VMS_IN_SET}", set()).add(number)
        return found

    # ---- Watching ----

    def resident_bytes(self) -> dict[str, int]:
        """The memory of every process, by what it is."""
        found = {}
        for name, process in self._processes.items():
            parent = psutil.Process(process.pid)
            found[name] = parent.memory_info().rss
            for number, child in enumerate(parent.children(recursive=True)):
                found[f"{name}'s worker {number}"] = child.memory_info().rss
        return found
