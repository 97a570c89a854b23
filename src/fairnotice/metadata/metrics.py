"""What the endpoint tells Prometheus: gathered where it happens, added up when somebody asks."""

from collections.abc import Iterable, Iterator

from fairnotice.metadata.faults import FaultKind
from fairnotice.metadata.worker import Worker
from fairnotice.wire.versions import SCHEDULED_EVENTS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]

# A VM or a node may have any name.
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def escaped(text: str) -> str:
    """A name as it stands in a label."""
    return text.translate(_ESCAPED)


def exposition(worker: Worker) -> str:
    """All metrics of one endpoint process, in Prometheus' text format."""
    lines: list[str] = []
    for name, kind, meaning, samples in _metrics(worker):
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        lines += [_line(name, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _metrics(worker: Worker) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
    board = worker.board
    yield (
        "fairnotice_metadata_requests_total",
        "counter",
        "Answered requests by status and api-version.",
        _requests(worker),
    )
    yield (
        "fairnotice_metadata_faults",
        "gauge",
        "Faults that are on, by kind and VM.",
        [({"fault": on.fault.kind, "vm": on.fault.vm or "all"}, 1) for on in worker.faults],
    )
    yield (
        "fairnotice_metadata_spoiled_answers_total",
        "counter",
        "Answers that a fault has spoiled, by its kind.",
        [({"fault": kind}, worker.faults.spoiled[kind]) for kind in FaultKind],
    )
    for name, kind, meaning, value in (
        ("documents_published_total", "counter", "Documents rendered.", board.published_count),
        ("polls_per_second", "gauge", "Polls in the last second.", worker.polls_per_second),
        ("vms", "gauge", "VMs on the board.", len(board.callers)),
        ("vms_seen", "gauge", "VMs that asked within the last minute.", _seen_lately(worker)),
        ("held_waits", "gauge", "Answers held until a document changes.", worker.held_count),
        ("connections", "gauge", "Open connections.", len(worker.connections)),
        ("unreported_scopes", "gauge", "Scopes served unrecorded.", len(board.unreported)),
    ):
        yield f"fairnotice_metadata_{name}", kind, meaning, (({}, value),)


def _requests(worker: Worker) -> Iterator[Sample]:
    counts = dict(worker.answers)
    for status, polls in ((200, worker.polls), (304, worker.unchanged)):
        for version, count in zip(SCHEDULED_EVENTS, polls, strict=True):
            if count:
                counts[status, version] = counts.get((status, version), 0) + count
    for (status, version), count in sorted(counts.items()):
        yield {"status": str(status), "api_version": version}, count


def _seen_lately(worker: Worker) -> int:
    since = worker.monotonic() - 60.0
    return sum(caller.asked_at > since for caller in worker.board.callers.values())


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    # Exact: a counter that is rounded to six digits jumps.
    written = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inside}}} {written}" if inside else f"{name} {written}"
