"""The portal's JavaScript is type-checked: a script that does not fit fails here."""

import subprocess
from pathlib import Path

from fairnotice.portal.assets import ASSETS
from tests.portal.browsing import TSC, needs_npm

HERE = Path(__file__).parent


def checked(*line):
    """What TypeScript says of these."""
    ran = subprocess.run(  # noqa: S603 - our own line
        ["node", str(TSC), *line],  # noqa: S607
        cwd=HERE,
        check=False,
        capture_output=True,
        text=True,
    )
    return ran.stdout


@needs_npm
def test_the_scripts_fit_their_types(tmp_path):
    """And one with a mistake is found."""
    assert checked("--project", "tsconfig.json") == ""
    (tmp_path / "wrong.js").write_text("/** @param {number} n */ function f(n) {}\nf('x');\n")
    options = ("--allowJs", "--checkJs", "--noEmit")
    assert "TS2345" in checked(*options, str(tmp_path / "wrong.js"))


def test_the_scripts_are_small():
    """All of them together, as they are sent."""
    scripts = [asset.zipped for name, asset in ASSETS.items() if name.endswith(".js")]
    assert sum(len(script) for script in scripts) < 12_000
