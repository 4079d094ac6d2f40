"""``python -m asgi_ratelimit`` is the command ``asgi-ratelimit``."""

from __future__ import annotations

import sys

from .tools.cli import main

sys.exit(main())
