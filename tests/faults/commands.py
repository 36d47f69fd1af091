"""The commands that write, in processes that can be killed and disturbed."""

import math
import os
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

import tailbatch.comparison
import tailbatch.report.page
import tailbatch.study
from faults.writes import Writes
from forked import context
from patience import HUNG, until
from served_file import CONTENT, served_catalog
from study_samples import Here, contents, run_here, tiny_file, tiny_study
from tailbatch.cli import app
from tailbatch.data import catalog
from tailbatch.files import replacing, sweep
from tailbatch.results import ResultStore
from tailbatch.results.archive import write_archive
from tailbatch.training.checkpoints import load_checkpoint


def _page_alone(records, out, *, study):
    """Replace the report, whose figures take longer than all runs together."""
    with replacing(out) as temporary:
        temporary.write_text(f"{len(records.frame(study))} runs")
    return ()


def _keep_short(arguments):
    """Draw one figure in a report, and none if the report is not under test."""
    real = tailbatch.report.page._write_files
    if arguments[0] == "report":
        tailbatch.report.page._write_files = lambda sections, folder: real(
            _drawn_once(sections), folder
        )
    else:
        tailbatch.report.page.write_report = _page_alone


def _drawn_once(sections):
    """Return the sections with only the first of all their figures."""
    left = 1
    for section in sections:
        yield replace(section, figures=dict(list(section.figures.items())[:left]))
        left = max(left - len(section.figures), 0)


def _child(arguments, environment, url, writes, log):
    """Be the command; its output and counts go to a file."""
    os.setsid()  # so that it can be killed with all its workers
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(environment)
    torch.set_num_threads(1)
    if url is not None:
        served = served_catalog(url)
        catalog.catalog = lambda: served
    if writes is not None:
        if writes.here:
            tailbatch.study.WorkerPool = lambda _: Here()  # all writes in this process
            _keep_short(arguments)
        writes.install()
    sys.argv = ["tailbatch", *arguments]
    try:
        app.main()
    finally:
        if writes is not None:
            Path(f"{log}.count").write_text(str(writes.count))


class Stop:
    """Terminates a study in the middle: one of its two runs has started, and one has not."""

    here = False
    count = 0

    def __init__(self, folder):
        self.folder = folder

    def install(self):
        real = tailbatch.study.run_study

        def run(*arguments, listen, **named):
            def stop(progress):
                listen(progress)
                if not progress.under_way:
                    return  # nothing has started yet
                until(lambda: [*self.folder.glob("*/*.epoch"), *self.folder.glob("runs/*.json")])
                os.kill(os.getpid(), signal.SIGTERM)

            return real(*arguments, listen=stop, **named)

        tailbatch.study.run_study = tailbatch.comparison.run_study = run


@dataclass
class Ended:
    """How a command ended, its output, and its number of writes if counted."""

    code: int
    said: str
    writes: int | None


class start:
    """A command in progress."""

    def __init__(self, arguments, home, *, environment=None, url=None, writes=None):
        self._log = home / "said"
        self.process = context.Process(
            target=_child, args=(arguments, environment or {}, url, writes, str(self._log))
        )
        self.process.start()

    def kill(self):
        """Kill it and its workers, if it has not ended."""
        if not self.process.is_alive():
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.kill()  # it has no process group yet

    def end(self):
        """Wait for its end."""
        self.process.join(HUNG)
        if self.process.is_alive():
            self.kill()
            raise AssertionError(f"it has not ended in {HUNG} s; it said: {self._log.read_text()}")
        count = Path(f"{self._log}.count")
        return Ended(
            self.process.exitcode,
            self._log.read_text() if self._log.exists() else "",
            int(count.read_text()) if count.exists() else None,
        )


class Fit:
    """``tailbatch fit`` into the folder ``model``."""

    name, ways = "fit", 6

    def __init__(self, home, address):
        self.home, self.folder = home, home / "model"
        self.home.mkdir()
        self.data = tiny_file(home)

    def start(self, writes=None):
        arguments = ["fit", str(self.data), "--out", str(self.folder), "--epochs", "12",
                     "--batch-size", "16", "--lr", "0.01", "--model", "mlp",
                     "--set", "model__hidden=[8]"]  # fmt: skip
        if list(self.folder.glob("training*")):
            arguments.append("--resume")
        elif (self.folder / "classifier.safetensors").exists():
            arguments.append("--overwrite")
        return start(arguments, self.home, writes=writes)

    def check(self, expected=None):
        """Fail on anything half written."""
        for path in self.folder.glob("[!.]*.safetensors"):
            load_checkpoint(path)

    def result(self):
        """Return the contents of the folder: the names, and the model without its times."""
        names = sorted(path.name for path in self.folder.iterdir())
        state = load_checkpoint(self.folder / "classifier.safetensors")
        return names, _plain(state)


class Compare:
    """``tailbatch compare`` into the folder ``store``."""

    name, ways = "compare", 6

    def __init__(self, home, address):
        self.home, self.folder = home, home / "store"
        self.home.mkdir()
        self.data = tiny_file(home)

    def start(self, writes=None):
        arguments = ["compare", str(self.data), "--store", str(self.folder), "--workers", "1",
                     "--strategies", "adaptive", "--n-folds", "2", "--epochs", "11",
                     "--batch-size", "16", "--lr", "0.01"]  # fmt: skip
        return start(arguments, self.home, writes=writes)

    def check(self, expected=None):
        """Fail on a store with a damaged file, or with arrays that cannot be read."""
        store = ResultStore(self.folder)
        for record in store.records():
            store.arrays(record.spec)
        store.studies(), store.failures(), store.datasets()
        assert not (self.folder / "damaged").exists()

    def result(self):
        """Return the records without their times, and the names of everything else."""
        store = ResultStore(self.folder)
        runs = self.folder / "runs"
        others = [
            path
            for path in self.folder.rglob("*")
            if (path.parent != runs or path.name[0] == ".")
            and "-files" not in str(path)
            # An empty folder such as checkpoints is made again when it is needed.
            and (path.name[0] == "." or path.is_file() or any(path.iterdir()))
        ]
        names = sorted(str(path.relative_to(self.folder)) for path in others)
        # A dataset's facts are stored under the path of its file.
        return contents(store), [re.sub(r"[0-9a-f]{32}", "digest", name) for name in names]


class Get:
    """``tailbatch datasets get`` into the folder ``cache``."""

    name, ways = "datasets get", 6

    def __init__(self, home, address):
        self.home, self.folder, self.address = home, home / "cache", address
        self.home.mkdir()

    def start(self, writes=None):
        environment = {"TAILBATCH_CACHE": str(self.folder), "TAILBATCH_DATA": ""}
        url = f"{self.address}/{'slow' if writes is None else 'good'}"
        arguments = ["datasets", "get", "yeast"]
        return start(arguments, self.home, environment=environment, url=url, writes=writes)

    def check(self, expected=None):
        """Fail on a file with the dataset's name that is incomplete."""
        path = self.folder / "yeast" / "yeast.arff"
        assert not path.exists() or path.read_bytes() == CONTENT

    def result(self):
        """Return all names and the file."""
        names = sorted(path.name for path in self.folder.rglob("*"))
        return names, (self.folder / "yeast" / "yeast.arff").read_bytes()


class StudyRun(Compare):
    """``tailbatch study run`` into the folder ``store``."""

    name, ways = "study run", 2

    def start(self, writes=None):
        study = self.home / "mine.toml"
        study.write_text(
            f'name = "mine"\nn_folds = 2\nfolds = [0]\nstrategies = ["random"]\n'
            f'datasets = ["{self.data}"]\n[plan]\nepochs = 2\nbatch_size = 16\n'
        )
        arguments = ["study", "run", str(study), "--store", str(self.folder), "--workers", "1"]
        return start(arguments, self.home, writes=writes)


class Import(Compare):
    """``tailbatch study import`` into the folder ``store``."""

    name, ways = "study import", 2

    def start(self, writes=None):
        arguments = ["study", "import", str(filled()[1]), "--store", str(self.folder)]
        return start(arguments, self.home, writes=writes)


class _Files:
    """A command that writes into the folder ``out``, over older files."""

    olds = ()
    ways = 2

    def __init__(self, home, address):
        self.home, self.folder = home, home / "out"
        self.folder.mkdir(parents=True)
        for name in self.olds:
            (self.folder / name).write_text("old")

    def start(self, writes=None):
        return start(self.arguments(), self.home, writes=writes)

    def check(self, expected):
        """Fail on a file that is neither the old nor the new one."""
        for name, content in self._files().items():
            if any(part[0] == "." for part in Path(name).parts):
                continue  # of a stopped writer
            assert content in (b"old", expected[name]), f"{name} holds half: {content[-200:]!r}"

    def result(self):
        """Return all files by name; whatever a stopped writer left is recognized and removed."""
        for folder in (self.folder, *self.folder.glob("[!.]*/")):
            sweep(folder)
        return self._files()

    def _files(self):
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


class Predict(_Files):
    """``tailbatch predict`` over an older file."""

    name, olds = "predict", ("predictions.csv",)

    def arguments(self):
        model, data = fitted()
        return [
            "predict",
            str(model),
            str(data),
            "--out",
            str(self.folder / "predictions.csv"),
            "--overwrite",
        ]


class Export(_Files):
    """``tailbatch study export`` over an older file."""

    name, olds = "study export", ("records.jsonl.gz",)

    def arguments(self):
        return ["study", "export", str(filled()[0]), "--out", str(self.folder / "records.jsonl.gz")]


class Report(_Files):
    """``tailbatch report`` over an older page and older tables."""

    name, olds, ways = "report", ("report.html", "runs.csv", "runs.parquet"), 1

    def arguments(self):
        page, csv, parquet = (str(self.folder / name) for name in self.olds)
        return ["report", str(filled()[0]), "--out", page, "--csv", csv, "--parquet", parquet]


COMMANDS = {"fit": Fit, "compare": Compare, "get": Get}
"""Commands that can resume."""

WRITERS = {
    **COMMANDS,
    "predict": Predict,
    "run": StudyRun,
    "export": Export,
    "import": Import,
    "report": Report,
}


@cache
def filled():
    """Return a store with two runs, and all its records in one file."""
    home = Path(tempfile.mkdtemp())
    store = ResultStore(home / "store")
    run_here(tiny_study(tiny_file(home), epochs=2, folds=[0]), store)
    write_archive(store, home / "records.jsonl.gz")
    return store.path, home / "records.jsonl.gz"


@cache
def fitted():
    """Return a folder with a trained model, and the file it was trained on."""
    home = Path(tempfile.mkdtemp())
    data = tiny_file(home)
    arguments = ["fit", str(data), "--out", str(home / "model"), "--epochs", "1"]
    ended = start(arguments, home).end()
    assert ended.code == 0, ended.said
    return home / "model", data


def _plain(value):
    """Return a state that can be compared: tensors and arrays as bytes, times left out."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name != "seconds"}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor | np.ndarray):
        return str(value.dtype), tuple(value.shape), np.asarray(value).tobytes()
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def undisturbed(command, home, address):
    """Run a command twice; return its result, its seconds, and its number of writes."""
    for attempt in (
        "first",
        "second",
    ):  # the first one also starts the process that others are forked from
        whole = WRITERS[command](home / attempt, address)
        began = time.monotonic()
        ended = whole.start(Writes(whole.folder)).end()
        assert ended.code == 0, ended.said
        seconds = time.monotonic() - began
    return whole.result(), seconds, ended.writes
