"""The command ``record``: runs an app, and records its requests and their keys."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from ...keys import client_ip
from ...keys.base import ScopeKey
from ..recorder import Recorder
from .arguments import add_app, load_app

_RECORD = "asgi-ratelimit record main:app --out requests.jsonl"


def add_commands(commands: Any) -> None:
    """Add ``record module:app``."""
    parser = commands.add_parser(
        "record", help="run an app with uvicorn, and record its requests for what-if and suggest", example=_RECORD
    )
    parser.add_argument("app", help="the app, as module:attribute")
    parser.add_argument("--out", type=Path, default=Path("requests.jsonl"), help="the file (default: requests.jsonl)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on (default: 8000)")
    parser.add_argument("--show-keys", action="store_true", help="record the clients' addresses instead of hashes")
    parser.add_argument("--trusted-proxy", action="append", default=[], help="as in client_ip(trusted_proxies=...)")
    add_app(parser)
    parser.set_defaults(run=record)


def record(options: argparse.Namespace) -> int:
    """Run the app until it is interrupted."""
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError('"record" runs the app with uvicorn: pip install uvicorn') from error
    app, key = load_app(options, _RECORD), client_ip(options.trusted_proxy)
    recorder = Recorder(options.out, show_keys=options.show_keys)
    print(f"recording into {options.out}")
    try:
        uvicorn.run(RecordedApp(app, recorder, key), host=options.host, port=options.port, proxy_headers=False)
    finally:
        recorder.close()
    return 0


class RecordedApp:
    """An app whose requests and handshakes are recorded."""

    def __init__(self, app: ASGIApp, recorder: Recorder, key: ScopeKey) -> None:
        self.app = app
        self._recorder = recorder
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            key = self._key.of(scope) or ""
            self._recorder.request(key, scope.get("method", "GET"), scope["path"])
        await self.app(scope, receive, send)
