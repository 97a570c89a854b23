"""What tests are handed; and Hypothesis: repeatable in `make test`, exploring in `make soak`."""

import signal

from hypothesis import HealthCheck, settings

from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

# No deadline: a slow machine is not a wrong law. A failure prints the line that repeats it.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    parent=settings.get_profile("house"),
    derandomize=False,
    max_examples=2_000,
    stateful_step_count=200,
)
settings.load_profile("house")

# What a shell puts behind `&` does not hear a terminal's signals, nor does anything that it starts:
# a program that a test interrupts would go on for ever.
for unheard in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(unheard) is signal.SIG_IGN:
        signal.signal(unheard, signal.SIG_DFL)
