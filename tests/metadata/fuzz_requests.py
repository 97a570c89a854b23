"""Coverage-guided fuzzing of request bytes and POST bodies, by atheris; 15 s of it in `make test`.

    python -m tests.metadata.fuzz_requests -max_total_time=60

Options are libFuzzer's. It begins with the requests of harmless.py, watches which branches of
`metadata/` and `wire/` an input reaches, and goes on with those that reach new ones. An input that
costs a traceback, a hang, a cut answer or a neighbour's event is written to crash-*; run with that
file as the argument to repeat it. atheris is in requirements-fuzz.lock.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fairnotice.metadata", "fairnotice.wire"]):
    from tests.metadata.harmless import WHOLE, must_be_harmless, world_of_two

from tests.metadata.wireless import post

# A world is made anew after so many inputs, so that what one leaves behind meets the next ones.
INPUTS_PER_WORLD = 200
# libFuzzer ends an input that takes longer than this, as a hang.
HANG_SECONDS = 20


class Target:
    """What is fuzzed: the first byte says what the others are."""

    def __init__(self) -> None:
        self.world = world_of_two()
        self.inputs = 0

    def __call__(self, data: bytes) -> None:
        """One input: a body, or request bytes in one piece or in several."""
        self.inputs += 1
        if self.inputs % INPUTS_PER_WORLD == 0:
            self.world.__exit__(None, None, None)
            self.world = world_of_two()
        kind, rest = data[:1], data[1:]
        if kind == b"B":
            must_be_harmless(self.world, post(rest))
        elif kind == b"P":
            must_be_harmless(self.world, rest[4:], [3 * place for place in rest[:4]])
        else:
            must_be_harmless(self.world, rest)


def seeds() -> list[bytes]:
    """Inputs to begin with."""
    whole = list(WHOLE.values())
    bodies = [b"{}", b'{"StartRequests":[{"EventId":"x"}],"DocumentIncarnation":"5"}', b"[[[["]
    return [
        *(b"R" + raw for raw in whole),
        *(b"P\x01\x07\x20\x40" + raw * 2 for raw in whole),
        *(b"B" + body for body in bodies),
    ]


def main() -> None:
    """Fuzz until libFuzzer's options say that it is enough."""
    with tempfile.TemporaryDirectory(prefix="fairnotice-fuzz-") as corpus:
        for number, seed in enumerate(seeds()):
            Path(corpus, str(number)).write_bytes(seed)
        given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
        options = [
            f"-timeout={HANG_SECONDS}",
            "-max_len=1024",
            f"-artifact_prefix={tempfile.gettempdir()}/",
        ]
        atheris.Setup(
            [sys.argv[0], *options, *sys.argv[1:], *([] if given else [corpus])], Target()
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
