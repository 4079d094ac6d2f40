"""A file that is read again may not give a name that another limit on the store has, as at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, Overrides, RateLimit, RateLimitMiddleware
from tests.inbound.config.limits_of import app as app_of_nothing
from tests.inbound.config.limits_of import limited
from tests.inbound.config.test_reload import RULE, client_of, limit_of, lines_of, looks_often
from tests.support.overriding import rewrite, until

pytestmark = pytest.mark.anyio

__all__ = ["looks_often"]

MINE = RULE.replace('"x"', '"mine"')


def limiter(store: MemoryStore) -> Any:
    return Limiter("3/hour", name="mine", store=store)


def middleware(store: MemoryStore) -> Any:
    return RateLimitMiddleware(app_of_nothing, "3/hour", name="mine", store=store)


@pytest.mark.parametrize("other", [limiter, middleware])
async def test_a_name_of_another_limit_is_refused(other: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, with the file, and nothing changes; the same file is refused at the next start."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    owner = other(store)
    reading = limited(path, RULE.format("100/hour"), store=store)
    async with client_of(reading) as client:
        await client.get("/x")
        rewrite(path, 'quota = "7/s"\n' + MINE.format("100/hour"))
        await until(lambda: bool(lines_of(caplog, path)))
        assert (limit_of(reading, "x"), limit_of(reading, "mine"), limit_of(reading, "default")) == ([100], [], [])
        (line,) = lines_of(caplog, path)
        assert line.startswith(f"the limits stay as they were: {path}: two limits named 'mine' share a store")
        with pytest.raises(ConfigurationError, match="two limits named 'mine'"):
            await client_of(RateLimitMiddleware(app_of_nothing, config=path, store=store)).get("/x")
        rewrite(path, MINE.format("3/hour"))
        await until(lambda: limit_of(reading, "mine") == [3])
    assert owner is not None


async def test_a_name_of_a_dependency_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The limits of routes go on as they were, too."""
    path = tmp_path / "limits.toml"
    path.write_text(RULE.format("100/hour"))
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=MemoryStore(), config=path)

    @app.get("/y", dependencies=[Depends(RateLimit("3/hour", name="mine"))])
    async def y() -> None:
        pass

    async with client_of(app) as client:
        assert (await client.get("/y")).headers["ratelimit"].startswith('"per-hour";r=2')
        rewrite(path, MINE.format("50/hour"))
        await until(lambda: bool(lines_of(caplog, path)))
        assert (await client.get("/x")).headers["ratelimit-policy"] == '"per-hour";q=100;w=3600'
        assert (await client.get("/y")).headers["ratelimit"].startswith('"per-hour";r=1')


async def test_a_refused_file_takes_no_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Names that it gives beside the wrong one stay free, and those of the last good one stay owned."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    owner = limiter(store)
    reading = limited(path, RULE.format("100/hour"), store=store)
    async with client_of(reading) as client:
        await client.get("/x")
        rewrite(path, RULE.replace('"x"', '"free"').format("5/hour") + MINE.format("100/hour"))
        await until(lambda: bool(lines_of(caplog, path)))
        assert limit_of(reading, "free") == []
    others = [owner, Limiter("9/hour", name="free", store=store)]
    with pytest.raises(ConfigurationError, match="two limits named 'x'"):
        others.append(Limiter("9/hour", name="x", store=store))


async def test_names_are_owned_from_the_change_on(tmp_path: Path) -> None:
    """A new name is taken, a changed quota is the one that others must have, and a name that is gone is free."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    reading = limited(path, RULE.format("100/hour") + MINE.format("5/hour"), store=store)
    async with client_of(reading) as client:
        await client.get("/x")
        rewrite(path, RULE.format("200/hour"))
        await until(lambda: limit_of(reading, "x") == [200])
    others = [limiter(store), Limiter("200/hour", name="x", store=store)]
    with pytest.raises(ConfigurationError, match="two limits named 'x'"):
        others.append(Limiter("100/hour", name="x", store=store))


async def test_an_override_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Names belong to what programs and files say; what applies for now may differ."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    owner = limiter(store)
    reading = limited(path, MINE.format("3/hour"), store=store)
    async with client_of(reading) as client:
        await client.get("/x")
        await Overrides(store).set("mine", "50/hour")
        assert limit_of(reading, "mine") == [50]
        rewrite(path, 'quota = "9/hour"\n' + MINE.format("3/hour"))
        await until(lambda: limit_of(reading, "default") == [9])
        assert limit_of(reading, "mine") == [50]
    assert owner is not None


async def test_middlewares_with_one_file_change_together(tmp_path: Path) -> None:
    """The first to read a change does not wait for the others, which own the old quota under the same name."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    readers = [limited(path, RULE.format("3/hour"), store=store) for _ in range(3)]
    for reader in readers:
        await client_of(reader).get("/x")
    rewrite(path, RULE.format("5/hour"))
    await until(lambda: [limit_of(reader, "x") for reader in readers] == [[5]] * 3)
    with pytest.raises(ConfigurationError, match="two limits named 'x'"):
        Limiter("3/hour", name="x", store=store)
