"""What is installed in a VM needs the standard library alone, and no module that only Unix has."""

import subprocess
import sys

PROGRAM = """
import builtins, importlib, pkgutil, sys

UNIX = {"crypt", "curses", "fcntl", "grp", "nis", "ossaudiodev", "pty", "pwd", "readline",
        "resource", "spwd", "syslog", "termios", "tty"}
real = builtins.__import__

def blocked(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name.partition(".")[0] in UNIX:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, locals, fromlist, level)

for name in UNIX:
    sys.modules.pop(name, None)
builtins.__import__ = blocked

def modules(package):
    yield package
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        yield found.name

count = 0
for room in ("fairnotice.client", "fairnotice.agent"):
    for name in modules(room):
        importlib.import_module(name)
        count += 1
importlib.import_module("fairnotice.cli.agent")
foreign = sorted({
    name.partition(".")[0] for name, module in list(sys.modules.items())
    if "site-packages" in (getattr(module, "__file__", None) or "")
} - {"_virtualenv", "sitecustomize", "fairnotice"} - BEFORE)
print(count, foreign)
"""


def test_client_and_agent_import_without_unix():
    """Every module of both, with what only Unix has blocked; and nothing from site-packages."""
    # -S: what a development environment loads at its start is none of the guest's.
    source = [path for path in sys.path if path.endswith("src")]
    program = f"import sys; sys.path[:0] = {source!r}\nBEFORE = set()\n{PROGRAM}"
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    count, foreign = ran.stdout.split(" ", 1)
    assert int(count) > 30
    assert foreign.strip() == "[]"
