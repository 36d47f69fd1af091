"""Build the wheel and the sdist, check their contents, and try each in an empty environment.

Both are built twice, in two folders, and must be byte-identical. The wheel is tried without extras first,
as in a training loop, then with the command line (the extra ``cli``); then the sdist replaces the wheel.
A bill of materials (CycloneDX) of what the wheel with the extra installs is written beside it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CLI_PACKAGES = ("defusedxml", "matplotlib", "pandas", "requests", "rich", "typer")
FIT = """
from tailbatch import TailbatchClassifier, load_dataset
data = load_dataset("debtags").take(range(300))
fitted = TailbatchClassifier(epochs=2, warm_up_epochs=1, random_state=0).fit(data.X, data.Y)
print("fitted on", data.name, fitted.predict_proba(data.X).shape)
"""


def main() -> None:
    """Build, compare, check the contents, install, list and try."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # Build requirements are pinned, too; files get the date of the last commit.
    pinned = {
        **os.environ,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "SOURCE_DATE_EPOCH": last_commit(),
    }
    wheel, sdist = build(ROOT, dist, pinned)
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        check_reproducible(home, (wheel, sdist), pinned)
        venv.create(home / "env", with_pip=False)
        python = str(home / "env/bin/python")
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        run(*install, str(wheel), env=pinned)
        try_core(home, wheel)
        run(*install, f"{wheel}[cli]", env=pinned)
        list_materials(python, wheel, pinned)
        try_out(home, wheel)
        run(*install, "--force-reinstall", "--no-deps", str(sdist), env=pinned)
        try_out(home, sdist)


def last_commit() -> str:
    """Return the time of the last commit, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return completed.stdout.strip()


def build(source: Path, out: Path, env: dict[str, str]) -> tuple[Path, Path]:
    """Build the wheel and the sdist of a source folder."""
    run(sys.executable, "-m", "build", "--outdir", str(out), str(source), env=env)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def check_reproducible(home: Path, built: tuple[Path, Path], env: dict[str, str]) -> None:
    """Exit unless a build elsewhere, of newer files with other permissions, gives the same bytes."""
    source = home / "elsewhere" / "source"
    for name in known_files("."):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
        (source / name).chmod(0o600 | (ROOT / name).stat().st_mode & 0o100)
    for first, second in zip(built, build(source, home / "again", env), strict=True):
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]
        if first.name != second.name or digests[0] != digests[1]:
            sys.exit(f"{first.name} is not reproducible: {digests[0]}, then {digests[1]}")
        print(f"{first.name}: built twice with the same bytes, SHA-256 {digests[0]}", flush=True)


def list_materials(python: str, wheel: Path, env: dict[str, str]) -> None:
    """Write the bill of materials of an environment in which the wheel was installed."""
    out = wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".cdx.json")
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"),
        *("--output-file", str(out), python),
        env=env,
    )
    materials = without_local_links(json.loads(out.read_text(encoding="utf-8")))
    # pyproject.toml leaves the version to the package, and the wheel's name has it.
    materials["metadata"]["component"]["version"] = wheel.name.split("-")[1]
    out.write_text(json.dumps(materials, indent=2) + "\n", encoding="utf-8")
    if str(ROOT) in out.read_text(encoding="utf-8") or not materials["components"]:
        sys.exit(f"{out.name} names a folder of this machine, or lists nothing")
    print(f"{out.name}: {len(materials['components'])} components", flush=True)


def without_local_links(value: Any) -> Any:
    """Return a bill of materials without links to files of this machine."""
    if isinstance(value, list):
        return [without_local_links(item) for item in value if not is_local_link(item)]
    if isinstance(value, dict):
        return {key: without_local_links(item) for key, item in value.items()}
    return value


def is_local_link(item: Any) -> bool:
    """Return whether an item links to a file of this machine."""
    return isinstance(item, dict) and str(item.get("url", "")).startswith("file:")


def check_contents(wheel: Path, sdist: Path) -> None:
    """Exit unless the archives contain exactly the package's files, and no path of this machine."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    info = next(name for name in inside if name.endswith("/METADATA")).removesuffix("METADATA")
    package = {name for name in inside if not name.startswith(info)}
    expected = {name.removeprefix("src/") for name in known_files("src/tailbatch")}
    if package != expected:
        sys.exit(f"{wheel.name}: unexpected or missing files: {sorted(package ^ expected)}")
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder, filter="data")
        [top] = Path(folder).iterdir()
        files = [path for path in top.rglob("*") if path.is_file()]
        source = {path.relative_to(top).as_posix(): path.read_bytes() for path in files}
    added = source.keys() - set(known_files(".")) - {"PKG-INFO"}
    if added or not expected <= {name.removeprefix("src/") for name in source}:
        sys.exit(f"{sdist.name}: unexpected files {sorted(added)}, or the package is not complete")
    for name, content in {**inside, **source}.items():
        for folder in (str(ROOT), str(Path.home())):
            if folder.encode() in content and len(folder) > 1:
                sys.exit(f"{name} names a folder of this machine: {folder}")
    print(f"{wheel.name}: {len(inside)} files; {sdist.name}: {len(source)} files")


def known_files(folder: str) -> list[str]:
    """Return the files below `folder` that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def try_core(home: Path, archive: Path) -> None:
    """Fit without the extra: its packages must be absent, and the command must say what to install."""
    programs = home / "env" / "bin"
    run(str(programs / "python"), "-c", FIT, cwd=home)
    for name in CLI_PACKAGES:
        missing = f"import sys, importlib.util as u; sys.exit(u.find_spec({name!r}) is not None)"
        run(str(programs / "python"), "-c", missing, cwd=home)
    command = [str(programs / "tailbatch"), "--version"]
    completed = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if completed.returncode != 2 or 'pip install "tailbatch[cli]"' not in completed.stderr:
        sys.exit(
            f"without the extra, tailbatch exits with {completed.returncode}:\n{completed.stderr[-3000:]}"
        )
    print(f"{archive.name}: tried without the extra cli", flush=True)


def try_out(home: Path, archive: Path) -> None:
    """Run the smoke test away from the repository: version, datasets, and a fit."""
    programs = home / "env" / "bin"
    run(str(programs / "tailbatch"), "--version", cwd=home)
    run(str(programs / "tailbatch"), "datasets", "list", cwd=home)
    run(str(programs / "python"), "-c", FIT, cwd=home)
    where = "import tailbatch, sys; sys.exit(not tailbatch.__file__.startswith(sys.prefix))"
    run(str(programs / "python"), "-c", where, cwd=home)
    print(f"{archive.name}: installed and tried", flush=True)


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command; if it fails, exit with its output."""
    completed = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        sys.exit(
            f"{' '.join(command[:6])} failed:\n{completed.stdout[-3000:]}{completed.stderr[-3000:]}"
        )


if __name__ == "__main__":
    main()
