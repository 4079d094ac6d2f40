"""Servers that stand in for APIs with limits, to try a client on: ``python -m examples.stand_ins github``.

``python -m examples.stand_ins`` lists them. ``--port`` is 8000 by default. The environment sets their limits, as the
text at the top of each of their modules says: ``LIMIT=10 PERIOD=60 python -m examples.stand_ins github``. Those of
language models are one variable: ``STAND_IN_LIMITS='{"requests": [10, 60]}' python -m examples.stand_ins openai``.
"""

from __future__ import annotations

import argparse
import os

import uvicorn

STAND_INS = {
    "discord": ("tests.stand_ins.discord_server", "buckets with names, a global limit, shared resources"),
    "github": ("tests.stand_ins.reporting.github_server", "a 403 above the primary limit, and a secondary limit"),
    "openai": ("tests.stand_ins.openai_server", "requests and tokens"),
    "anthropic": ("tests.stand_ins.anthropic_server", "requests, input tokens and output tokens"),
    "ietf": ("tests.stand_ins.reporting.ietf_server", "the newest IETF draft"),
    "hidden": ("tests.stand_ins.counting_server", "says nothing, and refuses above a hidden rate"),
}
"""The modules of the servers, and what each is like."""

HIDDEN = {"KIND": "bucket", "LIMIT": "20", "PERIOD": "1", "BURST": "20", "UNIT": "never"}
"""The settings of the server that says nothing, unless the environment has others."""


def main() -> None:
    """Serve one of them."""
    parser = argparse.ArgumentParser(prog="python -m examples.stand_ins", description=__doc__)
    parser.add_argument("name", nargs="?", choices=STAND_INS)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    if arguments.name is None:
        for name, (module, text) in STAND_INS.items():
            print(f"{name:10} {text} ({module})")
        return
    if arguments.name == "hidden":
        os.environ.update({**HIDDEN, **os.environ})
    uvicorn.run(f"{STAND_INS[arguments.name][0]}:app", port=arguments.port, lifespan="off")


if __name__ == "__main__":
    main()
