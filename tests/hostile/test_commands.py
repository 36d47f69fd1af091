"""Commands on small files that claim ten million features or labels.

The limits are those of the promise, 5 s of processor time and 1 GB, the libraries included.
"""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from patience import HUNG

TESTS = Path(__file__).parents[1]

#: Runs each command in a process of its own, forked after the imports; prints what it said and used.
RUNNER = """
import json, os, resource, sys
import matplotlib.figure, pandas, torch
import tailbatch.comparison, tailbatch.estimator, tailbatch.study
import tailbatch.cli.display, tailbatch.cli.study, tailbatch.report.page
from faults.commands import _page_alone
from study_samples import Here
from tailbatch.cli import app

tailbatch.study.WorkerPool = lambda _: Here()  # all work in the measured process
tailbatch.report.page.write_report = _page_alone
torch.set_num_threads(1)
for command in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        # A misbehaving command must not bring down the machine.
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        for stream in (1, 2):
            os.dup2(writing, stream)
        sys.argv = ["tailbatch", *command]
        try:
            app.main()
        except SystemExit as done:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(done.code or 0)
        os._exit(99)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read().decode()
    _, status, used = os.wait4(child, 0)
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps([code, text[:2000] + text[-2000:], seconds, megabytes]), flush=True)
"""

MANY = 9_999_999


def svm(rows, *, features=MANY, labels=MANY):
    lines = [f"{1 + row % 2} {1 + row % 3}:1" for row in range(rows)]
    return "\n".join([f"{rows} {features} {labels}", *lines, ""]).encode()


def labels_npz():
    stream = io.BytesIO()
    parts = {"data": np.ones(8, bool), "indices": np.arange(8) % 2, "indptr": np.arange(9)}
    Y = {f"Y_{part}": values for part, values in parts.items()}
    np.savez_compressed(stream, X=np.eye(8), **Y, Y_shape=np.array([8, 10_000_000]))
    return stream.getvalue()


FILES = {
    "sizes.svm": svm(2),
    "eight.svm": svm(8),
    "features.svm": svm(8, features=MANY, labels=3),
    "labels.svm": svm(8, features=4, labels=MANY),
    "labels.npz": labels_npz(),
}
TOO_LARGE = (
    r"(ensemble|clif) with [\d,]+ features and [\d,]+ labels has weights of [\d,.]+ GB, and at most "
    r"[\d.]+ GB can be trained here: leave out features"
)
COMMANDS = {
    **{f"datasets describe {name}": (0, "Worth a look") for name in FILES},
    "datasets describe sizes.svm --json": (0, '"n_labels": 9999999'),
    "datasets describe labels.npz --json": (0, '"n_labels": 10000000'),
    **{f"fit {name} --out model --epochs 1": (2, TOO_LARGE) for name in FILES},
    "fit sizes.svm --out model --epochs 1 --model clif": (2, TOO_LARGE),
    **{
        f"compare {name} --store {name}-store --epochs 1 --n-folds 2 --strategies random": (
            1,
            TOO_LARGE,
        )
        for name in FILES
        if name != "sizes.svm"
    },
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    commands = json.dumps([command.split() for command in COMMANDS])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{RUNNER}",
            commands,
        ],
        capture_output=True,
        text=True,
        timeout=HUNG,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(COMMANDS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_answer_soon_and_in_little_memory(command, answers):
    code, text, seconds, megabytes = answers[command]
    expected, said = COMMANDS[command]
    assert re.search(said, " ".join(text.split())), text
    assert code == expected, text
    assert seconds < 5
    assert megabytes < 1_000
