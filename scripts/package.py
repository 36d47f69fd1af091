"""Build the wheel and the sdist, look inside, install each into an empty environment, and try it.

The dependencies are installed once, with the wheel; then the sdist takes the wheel's place.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIT = """
from tailbatch import TailbatchClassifier, load_dataset
data = load_dataset("debtags").take(range(300))
fitted = TailbatchClassifier(epochs=2, warm_up_epochs=1, random_state=0).fit(data.X, data.Y)
print("fitted on", data.name, fitted.predict_proba(data.X).shape)
"""


def main() -> None:
    """Build, look inside, install and try."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # The build's own requirements are pinned like all others.
    pinned = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT), env=pinned)
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=True)
        install = [str(home / "env/bin/python"), "-m", "pip", "install", "--quiet"]
        run(*install, str(wheel), env=pinned)
        try_out(home, wheel)
        run(*install, "--force-reinstall", "--no-deps", str(sdist), env=pinned)
        try_out(home, sdist)


def check_contents(wheel: Path, sdist: Path) -> None:
    """Stop unless the archives hold the package's files, all of them, and no path of this machine."""
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
        for place in (str(ROOT), str(Path.home())):
            if place.encode() in content and len(place) > 1:
                sys.exit(f"{name} names a folder of this machine: {place}")
    print(f"{wheel.name}: {len(inside)} files; {sdist.name}: {len(source)} files")


def known_files(folder: str) -> list[str]:
    """Return the files below `folder` that git knows or would offer to add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


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
    """Run a command and stop with its output if it fails."""
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:6])} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()
