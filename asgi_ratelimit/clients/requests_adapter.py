"""``PacedAdapter``: requests of a ``requests.Session`` that wait for their slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Unpack
from urllib.parse import urlsplit

from ..errors import ConfigurationError, shows_use, to_install
from ..outbound import PacedTransport
from ..quota_text import QuotaLike
from .translation import ForwardedAnswer, ForwardedRequest, PacingOptions, require_options

try:
    from requests import PreparedRequest, Response
    from requests.adapters import BaseAdapter
except ImportError as error:
    raise ImportError(f"PacedAdapter needs requests: {to_install('requests')}") from error


def host(request: PreparedRequest) -> str:
    """The host that a request goes to: the default key of a ``PacedAdapter``."""
    return urlsplit(request.url or "").hostname or ""


class PacedAdapter(BaseAdapter):
    """An adapter for ``requests`` around any other, whose requests keep to ``quota``.

    ``session.mount("https://api.example.com/", PacedAdapter(HTTPAdapter(), "20/s"))``. The options are those of
    ``PacedTransport``; ``key`` and ``cost`` are values, or functions of the ``PreparedRequest``. A redirect costs as
    much as a request. The timeouts of requests do not include the wait for a slot. A request raises ``PaceTimeout``,
    which is not one of the exceptions of requests. Raises ``QuotaError`` and ``ConfigurationError``.
    """

    @shows_use('PacedAdapter(HTTPAdapter(), "20/s burst 5")')
    def __init__(
        self,
        adapter: BaseAdapter,
        quota: QuotaLike,
        *,
        key: Any = host,
        cost: Any = 1,
        **options: Unpack[PacingOptions],
    ) -> None:
        super().__init__()
        require_options("PacedAdapter", options)
        if not isinstance(adapter, BaseAdapter):
            raise ConfigurationError(
                f'a PacedAdapter wraps an adapter of requests, not {adapter!r}: PacedAdapter(HTTPAdapter(), "20/s")'
            )
        self._adapter = adapter
        self._transport = PacedTransport(_Inner(adapter), quota, key=key, cost=cost, **options)

    def __repr__(self) -> str:
        return repr(self._transport).replace("PacedTransport", "PacedAdapter", 1)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send a request at its slot; the arguments are those of the wrapped adapter."""
        send = partial(self._adapter.send, request, *args, **options)
        is_whole = request.body is None or isinstance(request.body, (bytes, str))
        forwarded = ForwardedRequest(request, send, b"" if is_whole else None)
        answer: ForwardedAnswer = self._transport.handle_request(forwarded)
        response: Response
        response, stream = answer.released()
        if stream is not None:
            response.raw = _Raw(response.raw, stream)
        response.connection = self  # type: ignore[assignment]  # requests sends by it again, as for digest auth
        return response

    def close(self) -> None:
        """Close the wrapped adapter, and the store if it was opened here."""
        self._transport.close()


class _Inner:
    """The wrapped adapter, as a transport."""

    def __init__(self, adapter: BaseAdapter) -> None:
        self._adapter = adapter

    def __repr__(self) -> str:
        return repr(self._adapter)

    def handle_request(self, forwarded: ForwardedRequest) -> ForwardedAnswer:
        response: Response = forwarded.send()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return ForwardedAnswer(response, response.status_code, headers)

    def close(self) -> None:
        self._adapter.close()


class _Raw:
    """The raw body of an answer, which reports what is read of it, and when it ends or is closed."""

    def __init__(self, raw: Any, stream: Any) -> None:
        self._raw = raw
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._raw, name)
        watch = _WATCHED.get(name)
        return attribute if watch is None else partial(watch, self, attribute)

    def __iter__(self) -> Iterator[bytes]:
        return self._iterate(self._raw.__iter__)

    def _iterate(self, method: Callable[..., Iterator[bytes]], *args: Any, **options: Any) -> Iterator[bytes]:
        try:
            for chunk in method(*args, **options):
                self._stream.saw(chunk)
                yield chunk
        except Exception:
            self._stream.close()
            raise
        self._stream.close()

    def _read(self, method: Callable[..., bytes], *args: Any, **options: Any) -> bytes:
        try:
            chunk = method(*args, **options)
        except Exception:
            self._stream.close()
            raise
        self._stream.saw(chunk)
        size = args[0] if args else options.get("amt")
        if size is None or (not chunk and size != 0):
            self._stream.close()
        return chunk

    def _end(self, method: Callable[[], None]) -> None:
        method()
        self._stream.close()


# The methods of urllib3's bodies through which clients read and close them.
_WATCHED: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("stream", "read_chunked"), _Raw._iterate),
    **dict.fromkeys(("read", "read1"), _Raw._read),
    **dict.fromkeys(("close", "release_conn", "drain_conn"), _Raw._end),
}
