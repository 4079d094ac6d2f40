"""Reading logs from files: what cannot be read, and the order of requests."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.tools import log_reading as reading
from asgi_ratelimit.tools.log_lines import EXAMPLE, JSON_EXAMPLE, LoggedRequest
from asgi_ratelimit.tools.log_reading import LogReader

LATER = EXAMPLE.replace(":36 ", ":37 ")
AT = 1_791_640_536 * 1_000_000


def written(path: Path, *lines: str) -> str:
    """The name of a file with these lines, compressed if its name says so."""
    data = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_files_of_any_format_are_read_together(tmp_path: Path) -> None:
    """Compressed or not, in the order of their requests."""
    names = [written(tmp_path / "b.gz", LATER), written(tmp_path / "a", EXAMPLE), written(tmp_path / "c", JSON_EXAMPLE)]
    reader = LogReader(names)
    assert [each[0] for each in reader.requests()] == [AT, AT + 250_000, AT + 1_000_000]
    assert (reader.lines, reader.unreadable, reader.late) == (3, 0, 0)


def test_unreadable_lines_are_counted(tmp_path: Path) -> None:
    """Before the first request and after it; bytes that are no UTF-8 are not fatal."""
    name = written(tmp_path / "a", "INFO: started", "", *[EXAMPLE] * 3, "\\x16", LATER)
    with Path(name).open("ab") as file:
        file.write(b"\xff\xfe\n" + EXAMPLE.replace("/login", "/é").encode("latin-1") + b"\n")
    reader = LogReader([name])
    assert len(list(reader.requests())) == 5
    assert (reader.lines, reader.unreadable) == (9, 4)


def test_the_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``-``, compressed or not."""
    for data in (f"{EXAMPLE}\n".encode(), gzip.compress(f"{EXAMPLE}\n".encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]
        assert [each[1] for each in LogReader(["-"]).requests()] == ["203.0.113.7"]


def test_lines_may_end_in_any_way(tmp_path: Path) -> None:
    """Also behind a byte order mark; the last one needs no end."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + f"{EXAMPLE}\r\n{EXAMPLE}\n{EXAMPLE}".encode())
    reader = LogReader([str(tmp_path / "a")])
    assert [each[1] for each in reader.requests()] == ["203.0.113.7"] * 3
    assert (reader.lines, reader.unreadable) == (3, 0)


@given(st.lists(st.integers(0, 300), max_size=8), st.booleans(), st.booleans())
def test_lines_that_are_too_long_count_as_one(lengths: list[int], has_end: bool, is_packed: bool) -> None:
    """Nothing of them is kept, and none of the others is lost."""
    lines = ["x" * length if length > 100 else EXAMPLE for length in lengths]
    data = ("\n".join([*[EXAMPLE] * 9, *lines]) + "\n" * has_end).encode()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LONGEST", len(EXAMPLE) + 1)
        (Path(folder) / "a").write_bytes(gzip.compress(data) if is_packed else data)
        reader = LogReader([str(Path(folder) / "a")])
        read = list(reader.requests())
    assert (len(read), reader.lines) == (9 + lines.count(EXAMPLE), 9 + len(lines))


@pytest.mark.parametrize("data", [bz2.compress(b"x"), lzma.compress(b"x"), f"{EXAMPLE}\n".encode("utf-16")])
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    """What is compressed otherwise, or in another encoding, is not taken for requests."""
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ConfigurationError, match="is a request, such as"):
        list(LogReader([str(tmp_path / "a")]).requests())


def test_a_log_without_requests_is_an_error(tmp_path: Path) -> None:
    """It quotes a line, and shows right ones; an empty file beside another is none."""
    with pytest.raises(ConfigurationError, match=r"none of the first .* is a request, such as\n.*\n.*\nbut 'hello'"):
        list(LogReader([written(tmp_path / "a", "hello")]).requests())
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ConfigurationError, match="empty is empty; lines are such as"):
        list(LogReader([str(empty)]).requests())
    name, key = written(tmp_path / "b", JSON_EXAMPLE), "field:method"
    assert [each[1] for each in LogReader([str(empty), name], key).requests()] == ["GET"]


@pytest.mark.parametrize("others", [["x"] * 5, ["x"] * 200, [JSON_EXAMPLE] * 3, [EXAMPLE.replace("2026:", "26:")] * 3])
def test_less_than_half_is_an_error(others: list[str], tmp_path: Path) -> None:
    """Of each file; half is enough."""
    readable = [EXAMPLE] * (len(others) - 1)
    good = written(tmp_path / "good", *[EXAMPLE] * 1000)
    if others != [JSON_EXAMPLE] * 3:  # of which more can be read
        counts = f"only {len(readable):,} of the {len(readable) + len(others):,} lines of"
        with pytest.raises(ConfigurationError, match=counts):
            list(LogReader([good, written(tmp_path / "a", *readable, *others)]).requests())
    reader = LogReader([good, written(tmp_path / "a", EXAMPLE, *readable, *others)])
    assert len(list(reader.requests())) == 1000 + len(others)


def test_one_second_that_fills_windows_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file in gzip may hold millions of such lines: no more than two windows of requests are kept."""
    monkeypatch.setattr(reading, "WINDOW", 100)
    latest = [0]

    def one_second() -> Iterator[tuple[float, str, str, str]]:
        for number in range(1000):
            latest[0] = number
            yield AT * 1.0, str(number), "GET", "/"

    read = list[float]()
    for number, each in enumerate(LogReader([]).in_order([one_second()])):
        assert latest[0] - number <= 200
        read.append(each[0])
    assert read == sorted(read)
    assert (len(read), read[0], read[-1] < AT + 1_000_000) == (1000, AT, True)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    """One that is cut short, or not compressed as it seems."""
    data = gzip.compress(b"\n".join(f"{EXAMPLE} {number}".encode() for number in range(5000)))
    for damaged in (data[:-100], data[:200] + bytes(100) + data[300:]):
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(OSError, match=r"a\.gz is damaged: "):
            list(LogReader([str(tmp_path / "a.gz")]).requests())
    with pytest.raises(OSError, match="nowhere"):
        list(LogReader(["/nowhere"]).requests())


# The order of requests

S = 1_000_000.0


def in_order(*logs: list[LoggedRequest]) -> tuple[list[LoggedRequest], LogReader]:
    """The requests of logs in their order, and the reader that counts."""
    reader = LogReader([])
    return list(reader.in_order(logs)), reader


def at(time_us: float) -> tuple[float, str, str, str]:
    """A request at a time."""
    return (time_us, "key", "GET", "/")


def times(*logs: list[float]) -> list[float]:
    """The times of logs, in their order."""
    return [each[0] for each in in_order(*[list(map(at, log)) for log in logs])[0]]


def test_whole_seconds_are_spread() -> None:
    """In the order of their lines; a fraction anywhere means that the log has fractions, and another one may not."""
    requests, reader = in_order([at(S / 2)] * 2, [(S, key, "GET", "/") for key in "abcd"], [at(2 * S)])
    assert [each[0] / S for each in requests] == [0.5, 0.5, 1, 1.25, 1.5, 1.75, 2]
    assert reader.in_whole_seconds
    assert times([S, S, 1.5 * S]) == [S, S, 1.5 * S]


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(2, 10))
def test_order_and_number_hold_whatever_the_window(seconds: list[int], window: int) -> None:
    """No request is lost, and none comes before an earlier one; those that are too late are counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WINDOW", window)
        requests, reader = in_order([at(second * S) for second in seconds])
    read = [each[0] for each in requests]
    assert len(read) == len(seconds)
    assert all(before <= after for before, after in pairwise(read))
    assert reader.late <= len(seconds)
    if seconds == sorted(seconds):
        assert reader.late == 0
        assert [time // S for time in read] == seconds
