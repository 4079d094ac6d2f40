"""The browser of the tests: Debian's headless Chromium. Run as a program, it gets it, and prints where it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.redis_servers import options_of_apt, reason, run
from tests.support.server import ROOT

FOLDER = ROOT / ".browser"
PACKAGE = "chromium-headless-shell"
# The package with the data that the program needs as well.
DATA = "chromium-common"
UNNEEDED = {"xdg-utils"}
# What it is called on PATH.
NAMES = (PACKAGE, "chrome-headless-shell", "chromium", "google-chrome")

WRAPPER = """#!/bin/sh
here="${0%/*}"
for folder in "$here"/usr/lib/*-linux-gnu* "$here"/usr/lib/*-linux-gnu*/*/; do
    LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
"""


def path() -> str:
    """The program: one that was downloaded, or one on PATH; it is downloaded if it is nowhere.

    Raises ``RuntimeError`` that says what to install.
    """
    own = FOLDER / PACKAGE
    for each in (str(own), *map(shutil.which, NAMES)):
        if each and Path(each).exists():
            return each
    try:
        _download(own)
    except (OSError, LookupError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"there is no {PACKAGE}, and it cannot be downloaded: {reason(error)}\n  Install Debian's package "
            f"{PACKAGE}, or put a Chromium on PATH under one of these names: {', '.join(NAMES)}"
        ) from error
    return str(own)


def _download(own: Path) -> None:
    """Unpack the package, and those that it needs and this machine lacks, into the folder; nothing is installed."""
    with TemporaryDirectory(dir=ROOT, prefix=".browser-") as folder:
        made = Path(folder, "made")
        made.mkdir()
        with TemporaryDirectory() as cache:
            apt = ("apt-get", *options_of_apt(Path(cache), ""))
            run(*apt, "update")
            plan = run(*apt, "install", "--simulate", "--no-install-recommends", PACKAGE)
            missing = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")}
            run(*apt, "download", *sorted((missing | {PACKAGE, DATA}) - UNNEEDED), cwd=cache)
            for package in Path(cache).glob("*.deb"):
                run("dpkg", "-x", str(package), str(made))
        (made / PACKAGE).write_text(WRAPPER, "utf-8")
        (made / PACKAGE).chmod(0o755)
        run(str(made / PACKAGE), "--no-sandbox", "--version")
        shutil.rmtree(own.parent, ignore_errors=True)
        made.rename(own.parent)


if __name__ == "__main__":
    try:
        print(path())
    except RuntimeError as error:
        sys.exit(f"error: {error}")
