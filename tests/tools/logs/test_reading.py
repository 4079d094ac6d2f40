"""Reading logs from files: their formats, and what cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.tools.logs import LogReader, files
from asgi_ratelimit.tools.logs.access_log import EXAMPLE
from asgi_ratelimit.tools.logs.json_lines import EXAMPLE as JSON_EXAMPLE

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
    name = written(tmp_path / "a", "INFO: started", "", EXAMPLE, "\\x16", LATER)
    with Path(name).open("ab") as file:
        file.write(b"\xff\xfe\n" + EXAMPLE.replace("/login", "/é").encode("latin-1") + b"\n")
    reader = LogReader([name])
    assert len(list(reader.requests())) == 3
    assert (reader.lines, reader.unreadable) == (7, 4)


def test_the_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``-``, compressed or not."""
    for data in (f"{EXAMPLE}\n".encode(), gzip.compress(f"{EXAMPLE}\n".encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]
        assert [each[1] for each in LogReader(["-"]).requests()] == ["203.0.113.7"]


def test_lines_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any block that is read, with any end, and behind a byte order mark; the last one needs no end."""
    text = f"{EXAMPLE}\r\n{EXAMPLE}\n{EXAMPLE}\r{EXAMPLE}"
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + text.encode())
    for size in (1, 7, len(EXAMPLE), len(EXAMPLE) + 1, 10_000):
        monkeypatch.setattr(files, "BLOCK", size)
        reader = LogReader([str(tmp_path / "a")])
        assert [each[1] for each in reader.requests()] == ["203.0.113.7"] * 4
        assert (reader.lines, reader.unreadable) == (4, 0)


@given(st.lists(st.integers(0, 120), max_size=8), st.integers(1, 40), st.booleans())
def test_lines_that_are_too_long_count_as_one(lengths: list[int], size: int, has_end: bool) -> None:
    """Nothing of them is kept, and none of the others is lost."""
    lines = ["x" * length if length > 100 else EXAMPLE for length in lengths]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", size)
        patch.setattr(files, "LONGEST", len(EXAMPLE) + 1)
        (Path(folder) / "a").write_text("\n".join([EXAMPLE, *lines]) + "\n" * has_end)
        reader = LogReader([str(Path(folder) / "a")])
        read = list(reader.requests())
    assert (len(read), reader.lines) == (1 + lines.count(EXAMPLE), 1 + len(lines))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bz2.compress(b"x"), "compressed by bzip2: bzip2 -dc {} | asgi-ratelimit what-if - "),
        (lzma.compress(b"x"), "compressed by xz: xz -dc {} | asgi-ratelimit"),
        (f"{EXAMPLE}\n".encode("utf-16"), "text in UTF-16: iconv -f UTF-16 -t UTF-8 {} | asgi-ratelimit"),
    ],
    ids=["bzip2", "xz", "utf-16"],
)
def test_other_files_are_named(data: bytes, error: str, tmp_path: Path) -> None:
    """With the program that makes lines of them."""
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ConfigurationError) as raised:
        list(LogReader([str(tmp_path / "a")]).requests())
    assert error.format(tmp_path / "a") in str(raised.value)


def test_progress_adds_up_to_the_size(tmp_path: Path) -> None:
    """In compressed bytes, for a compressed file."""
    advanced: list[int] = []
    names = [written(tmp_path / "a", *[EXAMPLE] * 5000), written(tmp_path / "b.gz", *[EXAMPLE] * 5000)]
    reader = LogReader(names, advance=advanced.append)
    assert len(list(reader.requests())) == 10_000
    assert sum(advanced) == reader.size == sum(Path(name).stat().st_size for name in names)


def test_a_log_without_requests_is_an_error(tmp_path: Path) -> None:
    """It quotes a line, and shows right ones; an empty file beside another is none."""
    with pytest.raises(ConfigurationError, match=r"no line of .* is a request, such as\n.*\n.*\nbut 'hello'"):
        list(LogReader([written(tmp_path / "a", "hello")]).requests())
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ConfigurationError, match="empty is empty; lines are such as"):
        list(LogReader([str(empty)]).requests())
    assert len(list(LogReader([str(empty), written(tmp_path / "b", EXAMPLE)]).requests())) == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            'INFO: started\nINFO:     127.0.0.1:52342 - "GET / HTTP/1.1" 200 OK\n',
            "read the log of the proxy in front of it",
        ),
        ('[{"time": 1, "path": "/"},\n{"time": 2, "path": "/"}]\n', r"jq -c '\.\[\]' makes such lines"),
        ('\n{\n"time": 1\n}\n', r"but '\{'\n.*jq -c '\.' makes"),
        ("\0\0\n", "it is not text"),
    ],
    ids=["uvicorn", "array", "object", "binary"],
)
def test_a_log_of_a_usual_kind_that_has_no_requests_gets_a_hint(text: str, hint: str, tmp_path: Path) -> None:
    """What to do instead."""
    (tmp_path / "a").write_text(text)
    with pytest.raises(ConfigurationError, match=hint):
        list(LogReader([str(tmp_path / "a")]).requests())


def test_a_log_that_is_named_twice_is_an_error(tmp_path: Path) -> None:
    """Its requests would count twice."""
    name = written(tmp_path / "a", EXAMPLE)
    with pytest.raises(ConfigurationError, match=r"is named twice: access\.log"):
        LogReader([name, name])


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    """One that is cut short, or not compressed as it seems."""
    data = gzip.compress(b"\n".join(f"{EXAMPLE} {number}".encode() for number in range(5000)))
    for damaged in (data[:-100], data[:200] + bytes(100) + data[300:]):
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(OSError, match=r"a\.gz is damaged: "):
            list(LogReader([str(tmp_path / "a.gz")]).requests())
    with pytest.raises(OSError, match="nowhere"):
        LogReader(["/nowhere"])
