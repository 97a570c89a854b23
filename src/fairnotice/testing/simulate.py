"""`make simulate`: many seeds of the simulator, side by side, and what came of them.

python -m fairnotice.testing.simulate --seeds 200
python -m fairnotice.testing.simulate --seed 17        # one seed, to repeat a failure
"""

import argparse
import os
import sys
from collections.abc import Iterable
from multiprocessing import Pool

from fairnotice.clock import Clock, SystemClock
from fairnotice.testing.simulator import STEPS, Run, simulate
from fairnotice.testing.witness import LawBroken


def main(arguments: list[str] | None = None, clock: Clock | None = None) -> int:
    """Run the seeds that were asked for; 1 where the law was broken."""
    options = _parser().parse_args(arguments)
    clock = clock or SystemClock()
    first = options.first if options.seed is None else options.seed
    seeds = range(first, first + (options.seeds if options.seed is None else 1))
    began = clock.monotonic()
    runs, failures = _run(seeds, options.steps, options.jobs)
    took = clock.monotonic() - began
    for seed, what in failures:
        print(f"\nseed {seed} breaks the law: {what}")
        print(f"repeat it: python -m fairnotice.testing.simulate --seed {seed}")
    print(_summary(runs, len(failures), took))
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fairnotice.testing.simulate",
        description="Drive random fleets through the law and look for violations.",
    )
    parser.add_argument("--seeds", type=_from_one, default=200, help="how many (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=_from_one, default=STEPS, help=f"of each seed ({STEPS})")
    parser.add_argument(
        "--jobs", type=_from_one, default=os.cpu_count() or 1, help="seeds side by side"
    )
    return parser


def _from_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1 on")
    return number


def _run(seeds: Iterable[int], steps: int, jobs: int) -> tuple[list[Run], list[tuple[int, str]]]:
    runs: list[Run] = []
    failures: list[tuple[int, str]] = []
    work = [(seed, steps) for seed in seeds]
    with Pool(min(jobs, len(work))) as pool:
        for (seed, _), result in zip(work, pool.imap(_one, work), strict=True):
            if isinstance(result, Run):
                runs.append(result)
            else:
                failures.append((seed, result))
            _show_progress(len(runs) + len(failures), len(work))
    return runs, failures


def _one(work: tuple[int, int]) -> Run | str:
    """One seed's result, or in words how it broke the law or the engine."""
    seed, steps = work
    try:
        return simulate(seed, steps)
    except LawBroken as broken:
        return f"{broken} ({', '.join(broken.__notes__)})"
    except Exception as error:  # noqa: BLE001 - a crash of the engine is a finding like any other
        return f"{type(error).__name__}: {error}"


def _show_progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == of else ""
        print(f"\r{done} of {of} seeds", end=end, file=sys.stderr, flush=True)


def _summary(runs: list[Run], violations: int, took: float) -> str:
    def total(what: str) -> int:
        return sum(getattr(run, what) for run in runs)

    days = sum(run.simulated_days for run in runs)
    rows = {
        "seeds": f"{len(runs) + violations:,}",
        "steps": f"{total('steps'):,}",
        "simulated days": f"{days:,.0f}",
        "commands": f"{total('commands'):,} ({total('refused'):,} refused)",
        "events": f"{total('events'):,}",
        "impacts": f"{total('impacts'):,}",
        "violations": f"{violations:,}",
        "took": f"{took:.1f} s",
    }
    return "\n".join(f"{name:<15} {value}" for name, value in rows.items())


if __name__ == "__main__":
    sys.exit(main())
