"""The examples of job queues, with real workers on a real Redis: each job runs once, and none before its slot."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

EARLY = 0.005
JOBS = 8
# The first job of each guild: its slot is the time at which it is sent, so it may run in the next window.
AT_ONCE = {"job-0", "job-1"}

WITHIN = 60.0
CALLED = re.compile(r"called (\S+) (\S+) slot=([\d.]+) now=([\d.]+)\s")  # a line that is being written has no end

CELERY = """
from examples.jobs.celery_app import send_later
for number in range({jobs}):
    send_later("guild-" + "ab"[number % 2], f"job-{{number}}")
"""

TASKIQ = """
import asyncio
from examples.jobs.taskiq_app import broker, guilds, send_later

async def main():
    await broker.startup()
    for number in range({jobs}):
        await send_later("guild-" + "ab"[number % 2], f"job-{{number}}")
    await broker.shutdown()
    await guilds.aclose()

asyncio.run(main())
"""

# The program that sends jobs, the commands of the processes that run them, and what these log when they are ready: jobs
# for a worker of taskiq, which logs nothing under Python 3.14, wait in a list.
QUEUES = {
    "celery": (
        CELERY,
        ["celery -A examples.jobs.celery_app worker --pool=solo --without-gossip --without-mingle --loglevel=info"],
        [" ready."],
    ),
    "taskiq": (
        TASKIQ,
        [
            "taskiq worker examples.jobs.taskiq_app:broker --workers 1",
            "taskiq scheduler examples.jobs.taskiq_app:scheduler --update-interval 1",
        ],
        ["Startup completed"],
    ),
}


def test_jobs_run_at_their_slots(redis_server: RedisServer, tmp_path: Path) -> None:
    """Two guilds have four jobs each, at one per two seconds: for the last ones, no worker sleeps. Both queues run."""
    redis_server.flush()
    urls = {name: f"{redis_server.url}/{database}" for database, name in enumerate(QUEUES)}
    with ThreadPoolExecutor(len(QUEUES)) as pool:
        called = {name: pool.submit(calls_of, name, url, tmp_path / name) for name, url in urls.items()}
    for name, future in called.items():
        calls = future.result()
        assert sorted(job for _, job, _, _ in calls) == [f"job-{number}" for number in range(JOBS)], name
        assert all(float(now) >= float(slot) - EARLY for _, _, slot, now in calls), name
        for guild in ("guild-a", "guild-b"):
            windows = [float(slot) // 2 for who, job, slot, _ in calls if who == guild and job not in AT_ONCE]
            assert len(set(windows)) == len(windows), name


def calls_of(name: str, url: str, log: Path) -> list[tuple[str, str, str, str]]:
    """Run the workers of a queue on a Redis of its own, send all jobs, and return their calls."""
    sends, workers, when_ready = QUEUES[name]
    environment = {**os.environ, "REDIS_URL": url, "QUOTA": "1 per 2 seconds fixed"}
    with log.open("ab") as output, ExitStack() as stack:
        for worker in workers:
            tool, *arguments = worker.split()
            command = (str(Path(sys.executable).with_name(tool)), *arguments)
            options = {"cwd": ROOT, "env": environment, "stdout": output, "stderr": output, "start_new_session": True}
            process = stack.enter_context(subprocess.Popen(command, **options))
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        logged(log, lambda text: all(each in text for each in when_ready))
        command = (sys.executable, "-c", sends.format(jobs=JOBS))
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=WITHIN)
        return CALLED.findall(logged(log, lambda text: len(CALLED.findall(text)) >= JOBS))


def logged(log: Path, is_enough: Callable[[str], object]) -> str:
    """What is in the log, once it is enough."""
    deadline = time.monotonic() + WITHIN
    while not is_enough(text := log.read_text(errors="replace")):
        assert time.monotonic() < deadline, text[-5000:]
        time.sleep(0.05)
    return text
