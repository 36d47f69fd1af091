"""Names of strategies, models and losses: built-in, registered, and from other packages."""

import dis
import functools
import hashlib
import io
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, resolve_name
from pathlib import PurePath
from pickle import Pickler
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tailbatch.errors import TailbatchError, did_you_mean

T = TypeVar("T")

_NO_WORD = re.compile(r"\W+")
_GENERATED = re.compile(r"(\w+)_[0-9a-f]{8}")
_UNHASHABLE: dict[int, tuple[object, str]] = {}
# What a class has beside its own code.
_NO_CODE = {
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__dataclass_fields__",
    "__dataclass_params__", "__dict__", "__doc__", "__firstlineno__", "__match_args__", "__module__",
    "__orig_bases__", "__parameters__", "__qualname__", "__static_attributes__", "__weakref__",
    "_abc_impl",
}  # fmt: skip

_log = logging.getLogger(__name__)


def check_known(
    what: str, name: object, known: Iterable[str], *, error: type[TailbatchError]
) -> None:
    """Raise `error` unless `name` is known, and suggest the closest known name.

    Examples
    --------
    >>> from tailbatch.errors import StudyError
    >>> check_known("strategy", "adpative", ["random", "adaptive"], error=StudyError)
    Traceback (most recent call last):
    ...
    tailbatch.errors.StudyError: unknown strategy 'adpative'; did you mean 'adaptive'? ...
    """
    names = list(known)
    if name in names:
        return
    raise error(f"unknown {what} {name!r:.80}{did_you_mean(name, names)}")


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name: built-in ones, added ones, and entry points of other packages.

    Other packages add entries under the entry-point group. Entry points are looked up only for a name
    that is not known otherwise, or to list all names; the lookup takes milliseconds.

    Parameters
    ----------
    what
        What an entry is, for error messages: ``"strategy"``.
    group
        Entry-point group, such as ``"tailbatch.strategies"``.
    error
        Raised for an unknown name.

    Examples
    --------
    >>> from tailbatch.errors import SelectionError
    >>> numbers = Registry[int]("number", "tailbatch.numbers", SelectionError)
    >>> numbers.add("one", 1)
    >>> numbers["one"], list(numbers), "two" in numbers
    (1, ['one'], False)
    >>> numbers["on"]
    Traceback (most recent call last):
    ...
    tailbatch.errors.SelectionError: unknown number 'on'; did you mean 'one'? Known: one
    """

    def __init__(self, what: str, group: str, error: type[TailbatchError]) -> None:
        self.what, self.group = what, group
        self._error = error
        self._entries: dict[str, T] = {}
        self._unregistered: dict[str, T] = {}

    def add(self, name: str, entry: T, *, replace: bool = False) -> None:
        """Add an entry; a name that is taken is an error unless `replace` is set.

        A class or function that is defined again, as in a rerun notebook cell, replaces the old one.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise self._error(
                f"the name of a {self.what} must be letters, digits and underscores, got {name!r}"
            )
        known = self._entries.get(name, entry)
        if not replace and known is not entry and not _is_defined_again(known, entry):
            raise self._error(
                f"there already is a {self.what} {name!r}; choose another name or pass replace=True"
            )
        self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Remove an added entry, if there is one."""
        self._entries.pop(name, None)

    def name_of(self, entry: T, called: str | None = None) -> str:
        """Return the name of an entry; an unregistered one gets a generated name.

        A generated name ends in a digest of the code and all that it uses (`source_digest`), so the same
        code has the same name in another session. It is known only in this process, and not listed.
        It begins with `called`, by default the name in the code.

        Examples
        --------
        >>> from tailbatch.errors import SelectionError
        >>> sizes = Registry("size", "tailbatch.sizes", SelectionError)
        >>> sizes.add("length", len)
        >>> sizes.name_of(len)
        'length'
        >>> name = sizes.name_of(max)
        >>> name[:4], sizes[name] is max, list(sizes), sizes.is_registered(name)
        ('max_', True, ['length'], False)
        """
        for name, known in self._entries.items():
            if known is entry:
                return name
        for name, point in self._offered().items():
            if point.value.replace(":", ".") == qualified_name(entry) and self[name] is entry:
                return name
        word = _NO_WORD.sub("_", called or _called(entry)).strip("_") or self.what
        name = f"{word}_{source_digest(entry)[:8]}"
        self._unregistered[name] = entry
        return name

    def loaded(self, name: str | None) -> T | None:
        """Return an entry that this process already knows, without looking at other packages."""
        if name is None:
            return None
        return self._unregistered.get(name) or self._entries.get(name)

    def is_registered(self, name: str) -> bool:
        """Return whether a name was registered rather than generated for an unregistered entry."""
        return name not in self._unregistered

    def __getitem__(self, name: str) -> T:
        if name in self._unregistered:
            return self._unregistered[name]
        if name not in self._entries:
            self._load(name)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._unregistered or name in self._offered()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._entries, *self._offered()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, name: str) -> None:
        offered = self._offered()
        check_known(self.what, name, [*self._entries, *offered], error=self._error)
        point = offered[name]
        try:
            self._entries[name] = point.load()
        except Exception as error:  # importing another package can raise anything
            raise self._error(
                f"the {self.what} {name!r} of the package "
                f"{point.dist.name if point.dist else '?'} cannot be loaded ({point.value}): {error}"
            ) from error


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names to show for these: without the digest of a generated one, if that is unambiguous.

    Examples
    --------
    >>> plain_names(["random", "zone_db961437"])
    {'random': 'random', 'zone_db961437': 'zone'}
    >>> plain_names(["zone_db961437", "zone_cc080333"])["zone_cc080333"]
    'zone_cc080333'
    """
    kept = list(dict.fromkeys(names))
    plain = [match[1] if (match := _GENERATED.fullmatch(name)) else name for name in kept]
    return {
        name: short if plain.count(short) == 1 else name
        for name, short in zip(kept, plain, strict=True)
    }


def qualified_name(entry: object) -> str:
    """Return the module and the name of a class or function, or of an object's class.

    Examples
    --------
    >>> qualified_name(Registry)
    'tailbatch.registry.Registry'
    """
    entry = entry.func if isinstance(entry, functools.partial) else entry
    code = entry if hasattr(entry, "__qualname__") else type(entry)
    return f"{code.__module__}.{code.__qualname__}"


def _is_defined_again(known: object, entry: object) -> bool:
    are_code = all(hasattr(candidate, "__qualname__") for candidate in (known, entry))
    return are_code and qualified_name(known) == qualified_name(entry)


def _called(entry: object) -> str:
    return qualified_name(entry).rpartition(".")[2]


def source_digest(entry: object) -> str:
    """Return a digest of the code of a class, function or object, and of all that it uses.

    It covers the functions, classes and constants that the code reaches in the user's own modules, as
    Python compiled them, and the values it captures. Packages count by name only. Neither the module's
    name nor comments matter, so a script and an import of it have one digest. What cannot be hashed,
    such as an open file, gets a digest of this session alone: its runs are never taken for others.

    Examples
    --------
    >>> def multiply(by):
    ...     return lambda value: by * value
    >>> source_digest(multiply(2)) == source_digest(multiply(3))
    False
    """
    try:
        return _digest(entry)
    except Exception as error:  # hooks of foreign objects may raise anything
        known = _UNHASHABLE.setdefault(id(entry), (entry, uuid4().hex))
        _log.warning(
            "%s uses what cannot be hashed (%s), so a store never has its runs",
            _called(entry),
            error,
        )
        return known[1]


def _digest(value: object) -> str:
    stream = io.BytesIO()
    _Reached(stream).dump(value)
    return hashlib.sha256(stream.getvalue()).hexdigest()


class _Reached(Pickler):
    """Writes an object with the user's functions and classes as their code instead of their names."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.fast = True  # equal values are written alike, whether or not they are one object
        self._seen: dict[int, object] = {}

    def persistent_id(self, value: Any) -> object:
        """Return what stands for a value, which is written in turn; None writes the value itself."""
        if isinstance(value, staticmethod | classmethod):
            return "method", type(value).__name__, value.__func__
        if isinstance(value, property):
            return "property", value.fget, value.fset, value.fdel
        if isinstance(value, set | frozenset):
            return "set", sorted(map(_digest, value))
        if isinstance(value, MappingProxyType):
            return "table", dict(value)
        if isinstance(value, ModuleType):
            return "module", value.__name__
        if isinstance(value, MemberDescriptorType | GetSetDescriptorType | logging.Logger):
            return "named", value.__class__.__name__
        if not isinstance(value, type | FunctionType):
            wrapped = getattr(value, "__wrapped__", None)  # for instance by functools.cache
            return None if wrapped is None else ("wrapped", wrapped)
        importable = getattr(sys.modules.get(value.__module__), value.__name__, None) is value
        if importable and not _is_own(value.__module__):
            return None
        if id(value) in self._seen:
            return "seen", list(self._seen).index(id(value))
        self._seen[id(value)] = value
        return _of_class(value) if isinstance(value, type) else _of_function(value)


def _is_own(module: str | None) -> bool:
    """Return whether a module is the user's: neither Python's, nor ours, nor an installed package's."""
    top = (module or "__main__").partition(".")[0]
    if top in ("tailbatch", *sys.stdlib_module_names) and top != "__main__":
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(PurePath(file).parts)


def _of_class(kind: type) -> tuple[object, ...]:
    own = {name: value for name, value in sorted(vars(kind).items()) if name not in _NO_CODE}
    return "class", kind.__name__, kind.__bases__, own


def _of_function(function: FunctionType) -> tuple[object, ...]:
    codes = list(_codes(function.__code__))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    kept = function.__defaults__, function.__kwdefaults__, cells, vars(function)
    return "function", function.__name__, [*map(_plain, codes)], kept, _globals_of(function, codes)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _plain(code: CodeType) -> tuple[object, ...]:
    constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, code.co_flags, code.co_argcount, code.co_kwonlyargcount, names, constants


def _globals_of(function: FunctionType, codes: Sequence[CodeType]) -> dict[str, object]:
    """Return the globals that code uses by name; of the user's modules, what it uses of them."""
    names = sorted({name for code in codes for name in code.co_names if name[:2] != "__"})
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    found |= {module.__name__: module for code in codes for module in _imported(code, function)}
    modules = [name for name, value in found.items() if isinstance(value, ModuleType)]
    while modules:
        module = found[(path := modules.pop())]
        if _is_own(module.__name__):
            found[path] = "the user's"
            for name in names:
                if name in vars(module) and f"{path}.{name}" not in found:
                    found[f"{path}.{name}"] = value = vars(module)[name]
                    modules += [f"{path}.{name}"] if isinstance(value, ModuleType) else []
    return found


def _imported(code: CodeType, function: FunctionType) -> Iterator[ModuleType]:
    """Yield the user's modules that a function imports when it is called."""
    before: list[Any] = [0, 0]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level = before[-2] if isinstance(before[-2], int) else 0
            name = "." * level + str(step.argval)
            name = resolve_name(name, function.__globals__.get("__package__") or "")
            if _is_own(name) and find_spec(name) is not None:
                yield import_module(name)
        before.append(step.argval)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a class that refers to itself before it exists
        return False
