"""Print how large the package is, and how far a reader walks through it.

    python scripts/house.py

Numbers with their limits: lines, files and public definitions of `src`, the functions and files that
`fit` enters before its first optimizer step, those that `make_selector` enters up to the first batch,
the longest ancestry of a strategy, and pages. `tests/package/test_house.py` holds the limits.

The limit of the lines is for what the package could do when it was set. Modules that are new
capabilities since then are listed in `NEW` and counted in a row of their own, without a limit.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tailbatch

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tailbatch"

# Modules that are new capabilities as a whole; one that replaces another module does not belong here.
NEW = (
    "cli/parts.py",
    "cli/predict.py",
    "cli/review.py",
    "data/table_pieces.py",
    "estimator/scoring.py",
    "estimator/reviewed.py",
    "data/embeddings.py",
    "estimator/texts.py",
    "integrations/streaming.py",
    "metrics/held_out.py",
    "models/finetuned.py",
    "review.py",
    "selection/label_counts.py",
    "selection/stream.py",
    "suggestions.py",
)

# What each number may be at most, in the order in which they are printed; None has no limit.
LIMITS = {
    "lines of src, new modules aside": 31_000,
    "lines of new modules": None,
    "files": 140,
    "public top-level definitions": 480,
    "functions to the first step of fit": 120,
    "files to the first step of fit": 22,
    "functions to the first draw": 60,
    "files to the first draw": 9,
    "longest ancestry of a strategy": 5,
    "pages": 18,
}


def source_files() -> list[Path]:
    """List every Python file of the package."""
    return sorted(SOURCE.rglob("*.py"))


def lines(files: Iterable[Path]) -> int:
    """Count the lines of files."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def public_definitions(path: Path) -> list[str]:
    """List classes and functions at the top level of a file whose names have no leading underscore."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]


def pages() -> list[Path]:
    """List the documentation's pages, without the generated reference."""
    return sorted((ROOT / "docs").glob("*.md"))


class _FirstStepError(BaseException):
    """Raised at the first optimizer step; no handler of ours catches it."""


def entered(work: Callable[[], object]) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the functions (file and name) and the files of the package that `work` enters.

    Lambdas and comprehensions count, too. Modules are imported before, so only calls count.
    """
    functions: set[tuple[str, str]] = set()

    def watch(frame: object, event: str, _argument: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        named = code.co_name != "<module>" and bool(code.co_flags & 0x1)
        if event == "call" and named and code.co_filename.startswith(str(SOURCE)):
            functions.add((code.co_filename, code.co_qualname))

    sys.setprofile(watch)
    try:
        work()
    except _FirstStepError:
        pass
    finally:
        sys.setprofile(None)
    return functions, {file for file, _ in functions}


def _walk_fit() -> tuple[set[tuple[str, str]], set[str]]:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from tailbatch import TailbatchClassifier

    def stop(*_: object) -> None:
        raise _FirstStepError

    data = _labeled_data()
    hook = register_optimizer_step_pre_hook(stop)
    try:
        return entered(lambda: TailbatchClassifier(random_state=0).fit(data.X[:300], data.Y[:300]))
    finally:
        hook.remove()


def _walk_draw() -> tuple[set[tuple[str, str]], set[str]]:
    from tailbatch import make_selector

    data = _labeled_data()
    return entered(
        lambda: next(iter(make_selector("chain", data.Y, X=data.X, batch_size=128, seed=0)))
    )


def _labeled_data() -> Any:
    """Import every module, so that what runs at import does not count; return the embedded dataset."""
    from tailbatch import load_dataset

    for module in pkgutil.walk_packages(tailbatch.__path__, "tailbatch."):
        if not module.name.startswith(("tailbatch.integrations.", "tailbatch.__main__")):
            importlib.import_module(module.name)
    return load_dataset("debtags")


def _ancestry() -> int:
    """Count the classes from the most derived strategy upward, all but `object`."""
    from tailbatch.selection.base import Selector

    def depth(kind: type) -> int:
        return len(kind.mro()) - 1

    def family(kind: type) -> Iterator[type]:
        yield kind
        for child in kind.__subclasses__():
            yield from family(child)

    return max(depth(kind) for kind in family(Selector))


def numbers() -> Iterator[tuple[str, int]]:
    """Yield the numbers, by the names in `LIMITS`."""
    files = source_files()
    new = [SOURCE / name for name in NEW]
    yield "lines of src, new modules aside", lines(files) - lines(new)
    yield "lines of new modules", lines(new)
    yield "files", len(files)
    yield "public top-level definitions", sum(len(public_definitions(f)) for f in files)
    draw, fit = _walk_draw(), _walk_fit()
    yield "functions to the first step of fit", len(fit[0])
    yield "files to the first step of fit", len(fit[1])
    yield "functions to the first draw", len(draw[0])
    yield "files to the first draw", len(draw[1])
    yield "longest ancestry of a strategy", _ancestry()
    yield "pages", len(pages())


def main() -> None:
    """Print the table, as JSON with `json`; with `walk-fit` or `walk-draw`, that walk's functions."""
    match sys.argv[1:]:
        case ["json"]:
            print(json.dumps({name: [number, LIMITS[name]] for name, number in numbers()}))
        case ["walk-fit" | "walk-draw" as walk]:
            functions, _ = _walk_fit() if walk == "walk-fit" else _walk_draw()
            for file, name in sorted(functions):
                print(f"{Path(file).relative_to(SOURCE)}: {name}")
        case _:
            print(f"{'what':<36} {'now':>7} {'at most':>8}")
            for name, number in numbers():
                limit = LIMITS[name]
                print(f"{name:<36} {number:>7,} {'' if limit is None else f'{limit:,}':>8}")


if __name__ == "__main__":
    main()
