"""`make simulate`: many seeds of the simulator, side by side, and what came of them.

make simulate SEEDS=200
make simulate SEED=17                                           # one seed, to repeat a failure
.venv/bin/python -m fairnotice.testing.simulate --seed 17       # the same
.venv/bin/python -m fairnotice.testing.simulate --help          # and more

Ended by 0 when every seed kept the law, 1 when one did not, 130 when somebody pressed Ctrl-C.
"""

import argparse
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import fairnotice
from fairnotice.clock import Clock, SystemClock
from fairnotice.testing.simulator import STEPS, Run, Simulation
from fairnotice.testing.witness import LawBroken

PACKAGE = Path(fairnotice.__file__).parent

# Of a seed among many, only so much is shown: whoever repeats it sees the rest.
VIOLATIONS_SHOWN = 3
# A fleet of two hundred VMs is declared in one command.
COMMAND_CHARACTERS_MAX = 2_000

# Whoever reads no terminal is told every so many seconds how far it is.
PROGRESS_SECONDS = 5.0

# What a shell says of a program that was ended by these signals.
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_NOBODY_READS = 128 + signal.SIGPIPE


class Failure(NamedTuple):
    """How a seed failed: in one line, in detail, and for whoever repeats it."""

    seed: int
    headline: str
    violations: tuple[str, ...] = ()
    # Of a crash only.
    trace: str = ""
    last_command: str = ""


class Result(NamedTuple):
    """What a seed did, and how it failed if it did."""

    run: Run
    failure: Failure | None = None


class Numbers(NamedTuple):
    """What all seeds did together, those that failed until they did."""

    seeds: int
    steps: int
    simulated_days: float
    commands: int
    refused: int
    events: int
    impacts: int
    seeds_that_failed: int
    took_seconds: float


class Outcome(NamedTuple):
    """What came of a simulation: numbers, what there is to say beside them, the exit code."""

    numbers: Numbers
    report: tuple[str, ...]
    code: int


def main(arguments: list[str] | None = None, clock: Clock | None = None) -> int:
    """Run the seeds that were asked for and print what came of them; the exit code."""
    outcome = simulated(arguments, clock or SystemClock())
    for text in outcome.report:
        print(f"\n{text}")
    print(_summary(outcome.numbers))
    return outcome.code


def simulated(arguments: list[str] | None, clock: Clock) -> Outcome:
    """Run the seeds that were asked for."""
    options = _parser().parse_args(arguments)
    one = options.seed is not None
    seeds = [options.seed] if one else range(options.first, options.first + options.seeds)
    began = clock.monotonic()
    results: list[Result] = []
    interrupted = False
    show_progress = _progress(len(seeds), clock)
    try:
        with _results([(seed, options.steps) for seed in seeds], options.jobs) as coming:
            for result in coming:
                results.append(result)
                show_progress(len(results))
    except KeyboardInterrupt:
        interrupted = True
    took = clock.monotonic() - began
    failures = [result.failure for result in results if result.failure is not None]
    report = [_report(failure, options.steps, alone=one) for failure in failures]
    if interrupted:
        report.append(f"interrupted after {len(results)} of {len(seeds)} seeds")
    numbers = _numbers([result.run for result in results], len(failures), took)
    code = EXIT_INTERRUPTED if interrupted else 1 if failures else 0
    return Outcome(numbers, tuple(report), code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_program(),
        description="Drive random fleets through the law and look for violations.",
    )
    parser.add_argument("--seeds", type=_from_one, default=200, help="how many (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="this one only, in full")
    parser.add_argument("--steps", type=_from_one, default=STEPS, help=f"of each seed ({STEPS})")
    parser.add_argument(
        "--jobs", type=_from_one, default=os.cpu_count() or 1, help="seeds side by side"
    )
    return parser


def _from_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 on, not {text}")
    return int(text)


# ---- Running ----


@contextmanager
def _results(work: list[tuple[int, int]], jobs: int) -> Iterator[Iterator[Result]]:
    """The result of each seed, in order. A lone seed runs here, where a debugger can reach it."""
    jobs = min(jobs, len(work))
    if jobs == 1:
        yield map(_one, work)
        return
    # Ctrl-C reaches every process of the terminal, and one is enough to say what was done. The
    # workers inherit that it is blocked; here it is let through again once the pool stands,
    # because an interrupt while it is being built leaves it hanging.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with Pool(jobs) as pool:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield pool.imap(_one, work)


def _one(work: tuple[int, int]) -> Result:
    """What one seed did, and in words how it broke the law or the engine."""
    seed, steps = work
    simulation = Simulation(seed, steps)
    try:
        return Result(simulation.run())
    except LawBroken as broken:
        headline = f"seed {seed} breaks the law at step {simulation.step}:"
        violations = tuple(f"rule {rule}: {what}" for rule, what in broken.violations)
        failure = Failure(seed, headline, violations)
    except Exception as error:  # noqa: BLE001 - a crash of the engine is a finding like any other
        what = traceback.format_exception_only(error)[-1].strip()
        place = f"at step {simulation.step} ({_place(error)})"
        headline = f"seed {seed} crashed the engine {place}: {what}"
        failure = Failure(seed, headline, trace="".join(traceback.format_exception(error)))
    last = _shortened(repr(simulation.stage.last_command))
    return Result(simulation.so_far(), failure._replace(last_command=last))


def _place(error: Exception) -> str:
    """The innermost line of fairnotice that the exception went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    frame = (ours or frames)[-1]
    return f"{_from_here(frame.filename)}:{frame.lineno}"


# ---- Printing ----


def _from_here(path: str) -> str:
    """The path as it is typed in the current directory."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _program() -> str:
    """How this program is started by hand, with the interpreter that runs it now."""
    return f"{shlex.quote(_from_here(sys.executable))} -m fairnotice.testing.simulate"


def _shortened(text: str) -> str:
    more = len(text) - COMMAND_CHARACTERS_MAX
    return f"{text[:COMMAND_CHARACTERS_MAX]} ... ({more:,} more characters)" if more > 0 else text


def _report(failure: Failure, steps: int, *, alone: bool) -> str:
    """A failed seed on paper: short among others, in full alone, and how to repeat it."""
    shown = failure.violations if alone else failure.violations[:VIOLATIONS_SHOWN]
    more = len(failure.violations) - len(shown)
    lines = [failure.headline, *(f"  {violation}" for violation in shown)]
    if more:
        lines.append(f"  and {more:,} more")
    if alone:
        lines += [f"last command: {failure.last_command}", *failure.trace.splitlines()]
    of_steps = "" if steps == STEPS else f" --steps {steps}"
    lines.append(f"repeat it: {_program()} --seed {failure.seed}{of_steps}")
    return "\n".join(lines)


def _progress(of: int, clock: Clock) -> Callable[[int], None]:
    """Tells whoever waits how far it is: in place on a terminal, else by a line now and then."""
    next_line_at = clock.monotonic() + PROGRESS_SECONDS

    def show(done: int) -> None:
        nonlocal next_line_at
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            print(f"\r{done} of {of} seeds", end=end, file=sys.stderr, flush=True)
        elif clock.monotonic() >= next_line_at:
            next_line_at = clock.monotonic() + PROGRESS_SECONDS
            print(f"{done} of {of} seeds", file=sys.stderr, flush=True)

    return show


def _numbers(runs: list[Run], failed: int, took: float) -> Numbers:
    def total(what: str) -> int:
        return sum(getattr(run, what) for run in runs)

    return Numbers(
        seeds=len(runs),
        steps=total("steps"),
        simulated_days=sum(run.simulated_days for run in runs),
        commands=total("commands"),
        refused=total("refused"),
        events=total("events"),
        impacts=total("impacts"),
        seeds_that_failed=failed,
        took_seconds=took,
    )


def _summary(numbers: Numbers) -> str:
    rows = {
        "seeds": f"{numbers.seeds:,}",
        "steps": f"{numbers.steps:,}",
        "simulated days": f"{numbers.simulated_days:,.0f}",
        "commands": f"{numbers.commands:,} ({numbers.refused:,} refused)",
        "events": f"{numbers.events:,}",
        "impacts": f"{numbers.impacts:,}",
        "seeds that failed": f"{numbers.seeds_that_failed:,}",
        "took": f"{numbers.took_seconds:.1f} s",
    }
    return "\n".join(f"{name:<17} {value}" for name, value in rows.items())


def _command() -> int:
    """`main` for a shell: whoever stops reading (`| head`) gets no traceback for it."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would try once more to write what is left, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NOBODY_READS
    return code


if __name__ == "__main__":
    sys.exit(_command())
