"""An app with the page, on the store whose URL is in the environment."""

from __future__ import annotations

import os

from asgi_ratelimit import open_store
from tests.support.dashboards import app_with_page

app = app_with_page(open_store(os.environ["STORE"]), show_keys=True, by=lambda request: "ann" * 80)
