"""The app that uvicorn serves: the subject that the environment names."""

from __future__ import annotations

import os
from typing import cast

from .subject import OPEN, Where, peer

app = peer(os.environ["BENCH_PEER"]).build(cast("Where", os.environ["BENCH_WHERE"]), os.environ["BENCH_URL"], OPEN)
