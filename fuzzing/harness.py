"""One target under coverage guidance: ``python -m fuzzing.harness arff SECONDS FOLDER``.

`python -m fuzzing` starts it in a separate process. Findings, including inputs that take too much CPU
time, are written to FOLDER, and fuzzing continues. A hang or too much memory ends the process, and
libFuzzer writes the input to FOLDER, too.
"""

import hashlib
import logging
import random
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tailbatch"]):
    from fuzzing.targets import TARGETS

#: Too much CPU time is a finding; the wall-clock limit only ends a hang.
CPU_SECONDS, WALL_SECONDS, MEGABYTES = 5, 120, 3_000


def _origin(error: BaseException) -> str:
    """Return where in the package an error, or its cause, was raised."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    ours = [frame for frame in frames if "tailbatch" in Path(frame.filename).parts] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def main(name: str, seconds: str, folder: str) -> None:
    """Fuzz one target for a while."""
    target, known = TARGETS[name], set[str]()
    logging.disable()

    def check(data: bytes) -> None:
        start = time.process_time()
        try:
            target.check(data)
            if time.process_time() - start > CPU_SECONDS:
                raise TimeoutError(f"{time.process_time() - start:.1f} s of CPU time")
        except Exception as error:
            what = f"{type(error).__name__} {_origin(error)}"
            if what not in known:  # report each mistake once
                known.add(what)
                path = Path(folder) / hashlib.sha256(data).hexdigest()[:16]
                path.write_bytes(data)
                print(f"FINDING {path}: {what}: {error!r}"[:500], file=sys.stderr, flush=True)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        if seed % 2:
            return bytes(atheris.Mutate(data, max_size))
        return target.mutate(data, random.Random(seed))[:max_size]

    here = Path(__file__).parent
    corpus = Path(folder) / "corpus"
    corpus.mkdir(exist_ok=True)
    seeds = [
        path for path in (here / "corpus" / name, here / "regressions" / name) if path.is_dir()
    ]
    with suppress(Exception):  # trigger late imports before anything is timed
        target.check(next((here / "corpus" / name).iterdir()).read_bytes())
    atheris.Setup(
        [
            "fuzz", str(corpus), *map(str, seeds), f"-max_total_time={seconds}", "-max_len=8192",
            f"-timeout={WALL_SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1",
            f"-artifact_prefix={folder}/", "-verbosity=1", "-len_control=0",
        ],
        check,
        custom_mutator=mutate,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
