"""The agent's numbers, in the text format of Prometheus, and the page that shows them."""

import threading
from collections import Counter
from collections.abc import Callable

from fairnotice.agent.answering import Answer, Listener
from fairnotice.errors import Unavailable

# Of each: its type, and what it means.
FAMILIES = {
    "fairnotice_agent_ready": ("gauge", "1 while it watches and nothing is prepared"),
    "fairnotice_agent_plans": ("gauge", "events with a plan that is not over"),
    "fairnotice_agent_prepared_handlers": ("gauge", "handlers whose preparation is not recovered"),
    "fairnotice_agent_last_answer_seconds": ("gauge", "since the service last gave a document"),
    "fairnotice_agent_documents_total": ("counter", "documents that were looked at"),
    "fairnotice_agent_misses_total": ("counter", "tries that gave no document"),
    "fairnotice_agent_steps_total": ("counter", "handlers that ended, by what came of them"),
    "fairnotice_agent_go_aheads_total": ("counter", "acknowledgements, by what came of them"),
}


class Numbers:
    """What is counted. Labels are pairs; a count without any has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, **labels: str) -> None:
        """One more."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """The whole page."""
        with self._lock:
            counts = dict(self._counts)
        lines = []
        for name, (kind, meaning) in FAMILIES.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            if kind == "gauge":
                lines += [f"{name} {gauges[name]:g}"] if name in gauges else []
                continue
            found = {labels: number for (of, labels), number in counts.items() if of == name}
            plain = name not in _LABELLED
            lines += [f"{name} {found.get((), 0)}"] if plain else []
            lines += [f"{name}{_shown(labels)} {n}" for labels, n in found.items() if labels]
        return "\n".join(lines) + "\n"


_LABELLED = frozenset({"fairnotice_agent_steps_total", "fairnotice_agent_go_aheads_total"})


def _shown(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Page(Listener):
    """Serves one page at `/metrics`."""

    def __init__(self, at: tuple[str, int], text: Callable[[], str]) -> None:
        self._text = text
        try:
            super().__init__(at, self._page)
        except OSError as error:
            raise Unavailable(
                f"metrics cannot listen at {at[0]}:{at[1]}: {error.strerror}."
            ) from error

    def _page(self, path: str) -> Answer:
        if path != "/metrics":
            return Answer("404 Not Found", "There is /metrics.\n")
        return Answer("200 OK", self._text(), "text/plain; version=0.0.4; charset=utf-8")
