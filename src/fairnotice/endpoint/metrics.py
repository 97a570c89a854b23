"""What an endpoint tells Prometheus: of its VMs, and of how it stands with the control planes."""

from collections.abc import Iterable, Sequence

from fairnotice.endpoint.link import Link
from fairnotice.metadata.metrics import CONTENT_TYPE, escaped

__all__ = ["CONTENT_TYPE", "exposition"]

PREFIX = "fairnotice_endpoint_"


def exposition(link: Link, node: str, workers: Sequence[str]) -> str:
    """All of it; `workers` are what each worker says of itself, alone where there is one."""
    served = workers[0] if len(workers) == 1 else _merged(workers)
    return served + _about(link, node)


def _about(link: Link, node: str) -> str:
    lines: list[str] = []
    for name, kind, meaning, value in (
        ("connected", "gauge", "Whether a control plane's feed is followed.", int(link.connected)),
        ("cut_off_seconds", "gauge", "For how long no feed is followed.", link.cut_off_seconds),
        ("connections_total", "counter", "Feeds followed so far.", link.connections_count),
        ("revision", "gauge", "The revision that was told last.", link.holding.revision),
        ("shown_revision", "gauge", "The revision that every worker shows.", link.shown),
        ("saved_revision", "gauge", "The revision that is on disk.", link.saved.revision),
        ("board_age_seconds", "gauge", "Since it was last told so.", link.saved.age_seconds),
        ("confirmed_revision", "gauge", "The revision that was confirmed.", link.confirmed),
        ("unreported", "gauge", "What was served and is not reported yet.", len(link.unreported)),
        ("faults_total", "counter", "Faults of its own that it outlived.", link.loops.faults_count),
        ("dropped_total", "counter", "Unreported and too much.", link.unreported.dropped_count),
    ):
        lines += [
            f"# HELP {PREFIX}{name} {meaning}",
            f"# TYPE {PREFIX}{name} {kind}",
            f"{PREFIX}{name} {value:.15g}",
        ]
    lines += [
        f"# HELP {PREFIX}info Which node's endpoint this is.",
        f"# TYPE {PREFIX}info gauge",
        f'{PREFIX}info{{node="{escaped(node)}"}} 1',
    ]
    return "\n".join(lines) + "\n"


def _merged(workers: Iterable[str]) -> str:
    """What several say, each sample with the number of its worker; a metric stands together."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, text in enumerate(workers):
        name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split()[2]
                heads.setdefault(name, [])
            if line.startswith("#"):
                if line not in heads[name]:
                    heads[name].append(line)
            else:
                samples.setdefault(name, []).append(_numbered(line, number))
    whole = [line for name in heads for line in (*heads[name], *samples.get(name, ()))]
    return "\n".join(whole) + "\n" if whole else ""


def _numbered(sample: str, worker: int) -> str:
    label = f'worker="{worker}"'
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
