"""Small changes to files: plain bytes, JSON values, and the parts of safetensors and npz files.

Coverage-guided fuzzing and the deterministic pass in the tests share them. A change that keeps the
outer format intact (lengths, checksums) gets past the first check, to where mistakes are likelier.
"""

import copy
import io
import json
import random
import struct
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

Mutator = Callable[[bytes, random.Random], bytes]

#: Values that are wrong in most places.
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 0.5, 2**31, 2**63, 10**30, 10**400, 1e308, float("nan"), float("inf"),
    "", "0", "x\n\x1b[2J", "../../x", "/etc/passwd", "\ud800", [], [[]], {}, {"": 0}, [1, 2, 3],
    {"name": "mlp"}, "mlp", "debtags", "64:1",
)  # fmt: skip
_ODD_BYTES = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r",
    b"\x1b[2J",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"9" * 30,
    b"-",
)


def bytes_mutator(tokens: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator of plain bytes that also inserts words of the format."""
    words = (*tokens, *_ODD_BYTES)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = _changed(data, rng, words)
        return data

    return mutate


def _changed(data: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((0, 1, 1, 2, 8, 40)))
    match rng.randrange(8):
        case 0:
            return data[:start] + bytes([rng.randrange(256)]) + data[stop:]
        case 1:
            return data[:start] + data[stop:]
        case 2:
            return data[:stop] + data[start:]
        case 3:
            return data[:start]
        case 4:
            return _lines_changed(data, rng)
        case _:
            return data[:start] + rng.choice(words) + data[stop:]


def _lines_changed(data: bytes, rng: random.Random) -> bytes:
    """Drop, repeat or move a line."""
    lines = data.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.randrange(3)):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def json_mutator(tokens: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator that changes values, keys and nesting, and sometimes the bytes."""
    mutate_bytes = bytes_mutator(tokens)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        value = _parsed(data)
        if value is None or rng.random() < 0.15:
            return mutate_bytes(data, rng)
        for _ in range(rng.choice((1, 1, 2, 3))):
            value = _value_changed(value, rng)
        return json.dumps(value).encode()

    return mutate


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _value_changed(root: Any, rng: random.Random) -> Any:
    """Return the value with one part of it changed, in place where that is possible."""
    places = [(holder, key) for holder in _containers(root) for key in _keys(holder)]
    if not places or rng.random() < 0.01:
        return copy.deepcopy(rng.choice(ODD_VALUES))
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other, other_key = rng.choice(places)
            holder[key] = copy.deepcopy(other[other_key])
        case 2:
            holder[key] = [holder[key]]
        case 3 if isinstance(holder, dict):
            holder[rng.choice((key.upper(), "", "$tensor", "$items", "x\x1b"))] = holder.pop(key)
        case 4 if isinstance(holder[key], str):
            holder[key] = holder[key][:-1] or "\x00"
        case _:
            holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return root


def _containers(root: Any) -> list[Any]:
    containers, waiting = [], [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            containers.append(value)
            waiting += value.values() if isinstance(value, dict) else value
    return containers


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def toml_mutator(tokens: Sequence[bytes]) -> Mutator:
    """Return a mutator of TOML files: values and keys, or the bytes."""
    mutate_bytes = bytes_mutator(tokens)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        try:
            value = tomllib.loads(data.decode())
        except (ValueError, RecursionError):
            return mutate_bytes(data, rng)
        if not value or rng.random() < 0.3:
            return mutate_bytes(data, rng)
        for _ in range(rng.choice((1, 1, 2))):
            _value_changed(value, rng)
        lines = (f"{json.dumps(key)} = {_toml(item)}\n" for key, item in value.items())
        return "".join(lines).encode(errors="replace")

    return mutate


def _toml(value: Any) -> str:
    """Return a value in one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool) or value is None:
        return str(bool(value)).lower()
    return json.dumps(value) if isinstance(value, str) else str(value)


def safetensors_mutator() -> Mutator:
    """Return a mutator of checkpoints: the state, the tensors' header, their data, or any bytes."""
    mutate_json, mutate_bytes = json_mutator(), bytes_mutator()

    def mutate(data: bytes, rng: random.Random) -> bytes:
        (length,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
        header = _parsed(data[8 : 8 + length])
        if not isinstance(header, dict) or rng.random() < 0.1:
            return mutate_bytes(data, rng)
        body, part = data[8 + length :], rng.random()
        if part < 0.15:
            return data[: 8 + length] + mutate_bytes(body, rng)
        metadata = header.get("__metadata__")
        if part < 0.3 or not isinstance(metadata, dict) or "tailbatch" not in metadata:
            text = mutate_json(json.dumps(header).encode(), rng)
        else:
            state = mutate_json(str(metadata["tailbatch"]).encode(errors="replace"), rng)
            metadata["tailbatch"] = state.decode(errors="replace")
            text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + body

    return mutate


def npz_mutator() -> Mutator:
    """Return a mutator of npz files: one array's bytes, the list of arrays, or any bytes."""
    mutate_bytes = bytes_mutator((b"'shape': (", b"'descr': '|O'", b"'<f8'", b"(1000000000,)"))

    def mutate(data: bytes, rng: random.Random) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
        except Exception:  # a broken archive can make the standard library raise anything
            return mutate_bytes(data, rng)
        if not parts or rng.random() < 0.15:
            return mutate_bytes(data, rng)
        name = rng.choice(sorted(parts))
        match rng.randrange(6):
            case 0:
                del parts[name]
            case 1:
                parts[rng.choice(("X.npy", "Y.npy", "../x.npy", "", "Y_shape.npy"))] = parts[name]
            case 2:
                parts[name] = parts[rng.choice(sorted(parts))]
            case _:
                parts[name] = mutate_bytes(parts[name], rng)
        return _zipped(parts)

    return mutate


def _zipped(parts: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in parts.items():
            # A fixed date: the same change gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name or "empty"), content)
    return stream.getvalue()
