"""Files by their names, and text in blocks of whole lines: plain or gzip, within limits."""

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping
from os import SEEK_END
from pathlib import Path

from tailbatch.errors import DataError

#: Read no more than this many (uncompressed) bytes of one file; a small gzip file can hold more
#: than any memory does.
MAX_BYTES = 8 << 30
#: A packed file may unpack to the first, or to the second times its own size where that is more.
#: A byte of text can take microseconds and hundreds of bytes of memory, whatever it was packed to.
MAX_UNPACKED_BYTES = 4 << 20
MAX_EXPANSION = 100
#: The same for arrays and columns, whose numbers take eight bytes each and no parsing.
MAX_ARRAY_BYTES = 256 << 20
#: No line may be longer: it has to fit in memory as a whole.
MAX_LINE_BYTES = 64 << 20
#: A file may claim no more columns than this: sums over them have to fit in memory.
MAX_COLUMNS = 10_000_000

_SMALL_FILE = 1 << 20
_CHUNK = 1 << 17  # small enough for the cache, large enough for NumPy


def _at_line(path: Path, line: int, message: str) -> DataError:
    """Return the error for one line of a file."""
    return DataError(f"{path}, line {line}: {message}")


def _filled_in(counts: Mapping[str, int]) -> str:
    """Say in one line which columns had missing values, which were filled in."""
    shown = ", ".join(f"{name!r:.40} ({count:,})" for name, count in list(counts.items())[:5])
    more = f" and {len(counts) - 5:,} more columns" if len(counts) > 5 else ""
    total = sum(counts.values())
    what = "value" if total == 1 else "values"
    return f"filled in {total:,} missing {what} with means or most frequent values: {shown}{more}"


def stem(path: Path) -> str:
    """Return a file's name without ``.arff`` and the like, with or without ``.gz``."""
    return Path(path.name.removesuffix(".gz")).stem


def _array_limit(packed_bytes: int) -> int:
    """Return how many bytes the arrays of a file of that size may take in memory."""
    return min(MAX_BYTES, max(MAX_ARRAY_BYTES, MAX_EXPANSION * packed_bytes))


def text_blocks(path: Path, *, endless: bool = False) -> Iterator[tuple[int, bytes]]:
    r"""Yield (number of the first line, text) for blocks of whole lines.

    Lines end in ``\n`` whatever they end with in the file; the last one may lack it. A UTF-8 byte
    order mark is left out. An `endless` file may be of any size: its reader keeps no more than a piece.
    """
    line = 1
    pending: list[bytes] = []
    for chunk in _normalized_chunks(path, endless):
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            block = b"".join([*pending, whole, newline])
            yield line, block
            line += block.count(b"\n")
            pending = []
        pending.append(rest)
        if sum(map(len, pending)) > MAX_LINE_BYTES:
            raise _at_line(path, line, f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
    if last := b"".join(pending):
        yield line, last


def _normalized_chunks(path: Path, endless: bool) -> Iterator[bytes]:
    r"""Yield the file's text with ``\r\n`` and ``\r`` turned into ``\n``."""
    held = b""
    for position, piece in enumerate(_chunks(path, endless)):
        chunk = held + piece
        held = b""
        if position == 0:
            if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DataError(f"{path} is UTF-16 text; save it as UTF-8")
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
        if chunk.endswith(b"\r"):  # its \n may be in the next piece
            chunk, held = chunk[:-1], b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield chunk
    if held:
        yield b"\n"


def _chunks(path: Path, endless: bool) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if they are gzip."""
    pieces = _unpacked(path, endless)
    try:
        is_small = path.stat().st_size <= _SMALL_FILE
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    # A small file that unpacks to too much is refused before a row of it is read.
    return iter(list(pieces)) if is_small and not endless else pieces


def _unpacked(path: Path, endless: bool) -> Iterator[bytes]:
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            unpacked = max(MAX_UNPACKED_BYTES, MAX_EXPANSION * raw.seek(0, SEEK_END))
            limit = min(MAX_BYTES, unpacked) if packed else MAX_BYTES
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                while chunk := stream.read(_CHUNK):
                    total += len(chunk)
                    if total > limit and not endless:
                        name = "MAX_BYTES" if limit == MAX_BYTES else "MAX_EXPANSION"
                        raise DataError(
                            f"{path} holds more than {limit >> 20:,} MiB; if you trust it, raise "
                            f"tailbatch.data.text.{name}"
                        )
                    yield chunk
    except EOFError:
        raise DataError(
            f"{path} is a truncated gzip file (it ends after {total:,} unpacked bytes); "
            "copy or download it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is a damaged gzip file ({error}); copy or download it again"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


#: Tables as text: columns separated by tabs, commas or semicolons.
TEXT_TABLES = (".csv", ".tsv", ".tab")
#: One JSON object a line, or one list of them.
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
ARFF = ".arff"
#: What is no table for us, and easily saved as one.
SPREADSHEETS = (".xlsx", ".xls", ".ods")

#: What runs code when it is read.
PICKLES = (".pkl", ".pickle", ".joblib")

_LABEL_FILE = ".xml"


def suffix(path: str | Path) -> str:
    """Return the ending of a file's name in small letters, ``.gz`` aside."""
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def is_table(path: str | Path) -> bool:
    """Whether a file is a table by its name: CSV, TSV, JSON lines (plain or gzip) or Parquet."""
    return suffix(path) in (*TEXT_TABLES, *JSON_LINES, PARQUET)


def label_file(labels: object) -> Path | None:
    """Return the MULAN XML file that `labels` names, None where it names columns."""
    if isinstance(labels, str) and labels.lower().endswith(_LABEL_FILE):
        return Path(labels)
    return labels if isinstance(labels, Path) else None
