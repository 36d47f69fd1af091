"""Names of strategies, models and losses: built-in, registered, and from other packages."""

import functools
import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from tailbatch.errors import TailbatchError, did_you_mean

T = TypeVar("T")

_PLAIN = (str, int, float, bool, tuple, type(None))
_NO_WORD = re.compile(r"\W+")


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

        A generated name ends in a digest of the qualified name and the source, so the same code has the
        same name in another session. It is known only in this process, and not listed.

        Parameters
        ----------
        entry
            A class or a function.
        called
            What a generated name begins with; by default the name in the code.

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


def source_digest(entry: object) -> str:
    """Return a digest of the code of a class or function and of the values it captures.

    If a captured object's ``repr`` is its memory address, the digest differs in every session. Its runs
    are then repeated rather than mistaken for others.

    Examples
    --------
    >>> def multiply(by):
    ...     return lambda value: by * value
    >>> source_digest(multiply(2)) == source_digest(multiply(3))
    False
    """
    text = "\n".join([qualified_name(entry), *_code(entry)])
    return hashlib.sha256(text.encode()).hexdigest()


def _is_defined_again(known: object, entry: object) -> bool:
    are_code = all(hasattr(candidate, "__qualname__") for candidate in (known, entry))
    return are_code and qualified_name(known) == qualified_name(entry)


def _called(entry: object) -> str:
    return qualified_name(entry).rpartition(".")[2]


def _code(entry: Any) -> Iterator[str]:
    """Yield strings that identify what a class, a function or a partial does."""
    if isinstance(entry, functools.partial):
        yield repr((entry.args, sorted(entry.keywords.items())))
        entry = entry.func
    elif not inspect.isroutine(entry) and not isinstance(entry, type):
        yield repr(vars(entry) if hasattr(entry, "__dict__") else entry)
        entry = type(entry)
    functions = list(filter(inspect.isfunction, _members(entry)))
    try:
        yield inspect.getsource(entry)
    except (OSError, TypeError):  # typed at a prompt, or compiled
        for function in functions:
            code = function.__code__
            plain = [value for value in code.co_consts if not inspect.iscode(value)]
            yield repr((code.co_code, code.co_names, plain))
    for function in functions:
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        yield repr((function.__defaults__, function.__kwdefaults__, cells))
    if isinstance(entry, type):
        plain = [(k, v) for k, v in vars(entry).items() if type(v) in _PLAIN and k[:2] != "__"]
        yield repr(sorted(plain))


def _members(entry: object) -> Iterable[object]:
    return vars(entry).values() if isinstance(entry, type) else (entry,)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a class that refers to itself before it exists
        return False
