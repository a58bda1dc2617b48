"""What polars does not check in a Parquet file: the checksums of its pages, and the counts in their headers.

A file is pages, each behind a header, and a footer that says where the pages of each column are. A header may hold the
CRC-32 of its page. Footer and headers are structs in Thrift's compact protocol. Polars takes as much memory as a header
says that it needs, and a count of −13, one wrong bit away from 12, ends the process.
"""

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sasgp.errors import InputError

__all__ = ["check_pages"]

T = TypeVar("T")

MAGIC = b"PAR1"
MAX_DEPTH = 32  # of structs in structs; a footer has five
PART = 1 << 24  # bytes of a page that are in memory at a time

# Numbers of fields, by the definition of the format
ROW_GROUPS, COLUMNS, META_DATA = 4, 1, 3
N_VALUES, UNPACKED, PACKED, FIRST_DATA, DICTIONARY = 5, 6, 7, 9, 11  # of a column in a group of rows
PAGE_UNPACKED, PAGE_PACKED, CRC = 2, 3, 4  # of a page
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_2 = 5, 7, 8
COUNTS = (1, 2, 3, 5, 6)  # of values, nulls, rows and bytes, in a page's own header; all numbers of a dictionary's


class Chunk(NamedTuple):
    """The pages of a column in a group of rows: where they are, and how much they hold."""

    start: int
    end: int
    n_values: int
    unpacked: int


class UnreadableError(Exception):
    """Bytes that are no struct."""


def check_pages(path: Path) -> None:
    """Raise InputError if a page of a .parquet file has another checksum, or a header that cannot be right.

    What is no Parquet file at all is left to polars, which says so.
    """
    with path.open("rb") as file:
        if file.seek(0, 2) < 3 * len(MAGIC):
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                chunks = list(_chunks(content))
            except UnreadableError:
                return
            found = next((found for chunk in chunks if (found := _wrong_page(content, chunk))), None)
    if found is not None:
        place, what = found
        raise InputError(f"{path} is damaged: the page at byte {place} {what}. Copy it or save it again.")


def _chunks(content: mmap.mmap) -> Iterator[Chunk]:
    size = len(content) - 2 * len(MAGIC)  # without the footer's length and the end
    start = size - int.from_bytes(content[size : size + 4], "little")
    footer = Struct(content, start).read()
    for group in _part(footer, ROW_GROUPS, list):
        for column in _part(group, COLUMNS, list):
            about = _part(column, META_DATA, dict)
            n_values, unpacked, packed = (_part(about, number, int) for number in (N_VALUES, UNPACKED, PACKED))
            places = [_part(about, number, int) for number in (FIRST_DATA, DICTIONARY) if number in about]
            start = min((place for place in places if place), default=0)  # 0: there is none
            yield Chunk(start, start + packed, n_values, unpacked)


def _part(fields: Any, number: int, kind: type[T]) -> T:
    """A field of a struct, which must have it."""
    found = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(found, kind):
        raise UnreadableError
    return found


def _wrong_page(content: mmap.mmap, chunk: Chunk) -> tuple[int, str] | None:
    """The first page of a column that is wrong: where it begins, and what is wrong."""
    place = chunk.start
    while place < chunk.end:
        struct = Struct(content, place)
        try:
            header = struct.read()
            if wrong := _wrong_header(header, chunk):
                return place, wrong
            end = struct.place + _part(header, PAGE_PACKED, int)
            crc = _part(header, CRC, int) % 2**32 if CRC in header else None  # it is stored with a sign
        except UnreadableError:
            return place, "has no header that can be read"
        if crc is not None and crc != _checksum(content, struct.place, end):
            return place, "does not have its checksum"
        place = end
    return None


def _wrong_header(header: dict[int, Any], chunk: Chunk) -> str | None:
    packed, unpacked = (_part(header, number, int) for number in (PAGE_PACKED, PAGE_UNPACKED))
    counts = [
        _part(header[kind], number, int)
        for kind in (DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_2)
        for number in (COUNTS if kind == DATA_PAGE_2 else COUNTS[:1])
        if kind in header
    ]
    if min(packed, unpacked, *counts) < 0:
        return "has a negative size"
    if unpacked > chunk.unpacked:
        return f"would unpack to {unpacked} bytes, more than the whole column"
    if DICTIONARY_PAGE not in header and max(counts, default=0) > max(chunk.n_values, unpacked):
        return f"would hold {max(counts)} values, more than the whole column"
    return None


def _checksum(content: mmap.mmap, start: int, end: int) -> int:
    crc = 0
    for place in range(start, end, PART):
        crc = zlib.crc32(content[place : min(place + PART, end)], crc)
    return crc


class Struct:
    """A struct in Thrift's compact protocol.

    Parameters
    ----------
    content
    place
        Where it begins. After `read`, where it ends.
    """

    def __init__(self, content: mmap.mmap, place: int) -> None:
        self.content, self.place = content, place

    def read(self, depth: int = 0) -> dict[int, Any]:
        """The values of its fields, by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while (byte := self._byte()) != 0:
            step, kind = byte >> 4, byte & 15
            number = number + step if step else self._integer()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise UnreadableError
        match kind:
            case 1 | 2 | 3:  # in a list, a truth value has a byte
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10:
                byte = self._byte()
                length = byte >> 4 if byte >> 4 != 15 else self._unsigned()
                return [self._value(byte & 15, depth + 1) for _ in range(length)]
            case 12:
                return self.read(depth + 1)
        raise UnreadableError

    def _integer(self) -> int:
        n = self._unsigned()
        return (n >> 1) ^ -(n & 1)  # 0, −1, 1, −2, …

    def _unsigned(self) -> int:
        """Seven bits of each byte, the lowest first, up to a byte without an eighth."""
        n = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            n |= (byte & 127) << shift
            if byte < 128:
                return n
        raise UnreadableError

    def _byte(self) -> int:
        if not 0 <= self.place < len(self.content):
            raise UnreadableError
        self.place += 1
        return self.content[self.place - 1]

    def _bytes(self, n: int) -> bytes:
        found = self.content[self.place : self.place + n]
        if len(found) < n:
            raise UnreadableError
        self.place += n
        return found
