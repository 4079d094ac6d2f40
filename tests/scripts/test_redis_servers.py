"""A killed run of tests leaves no Redis behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from tests.support.redis_cluster import wait_until
from tests.support.server import HOST, ROOT

# A program that runs until it is killed.
HOLDS_ONE = """
from tests.support.redis_server import RedisServer
with RedisServer() as server:
    {}
    print(server.port, flush=True)
    input()
"""


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_server_behind(number: signal.Signals, paused: bool) -> None:
    """However it was killed, even one that was frozen."""
    program = HOLDS_ONE.format("server.pause()" if paused else "pass")
    with subprocess.Popen(
        (sys.executable, "-c", program), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert accepts(port)
        run.send_signal(number)
    wait_until(lambda: not accepts(port))


def accepts(port: int) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection((HOST, port), timeout=5):
            return True
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # it is just being killed
        return True
