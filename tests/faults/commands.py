"""The commands fit, compare and datasets get, in processes that can be killed and disturbed."""

import math
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import tailbatch.report.page
import tailbatch.study
from faults.writes import Writes
from forked import context
from served_file import CONTENT, served_catalog
from study_samples import Here, contents, tiny_file
from tailbatch.cli import app
from tailbatch.data import catalog
from tailbatch.files import replacing
from tailbatch.results import ResultStore
from tailbatch.training.checkpoints import load_checkpoint


def _page_alone(store, out, *, study):
    """Stand in for the report, whose pictures take longer than all runs together."""
    with replacing(out) as temporary:
        temporary.write_text(f"{len(ResultStore(store).frame(study))} runs")


def _child(arguments, environment, url, writes, log):
    """Be the command; what it says and counts goes to a file."""
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
        tailbatch.study.WorkerPool = lambda _: Here()  # all writes in this process
        tailbatch.report.page.write_report = _page_alone
        writes.install()
    sys.argv = ["tailbatch", *arguments]
    try:
        app.main()
    finally:
        if writes is not None:
            Path(f"{log}.count").write_text(str(writes.count))


@dataclass
class Ended:
    """How a command ended, what it said, and how often it wrote if that was counted."""

    code: int
    said: str
    writes: int | None


class start:
    """A command under way."""

    def __init__(self, arguments, home, *, environment=None, url=None, writes=None):
        self._log = home / "said"
        self.process = context.Process(
            target=_child, args=(arguments, environment or {}, url, writes, str(self._log))
        )
        self.process.start()

    def kill(self):
        """End it and its workers at once, if it has not ended."""
        if not self.process.is_alive():
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.kill()  # it has no group of its own yet

    def end(self, timeout=120):
        """Wait for its end."""
        self.process.join(timeout)
        if self.process.is_alive():
            self.kill()
            raise AssertionError(f"it does not end: {self._log.read_text()}")
        count = Path(f"{self._log}.count")
        return Ended(
            self.process.exitcode,
            self._log.read_text() if self._log.exists() else "",
            int(count.read_text()) if count.exists() else None,
        )


class Fit:
    """``tailbatch fit`` into the folder ``model``."""

    name = "fit"

    def __init__(self, home, address):
        self.home, self.folder = home, home / "model"
        self.home.mkdir()
        self.data = tiny_file(home)

    def start(self, writes=None):
        arguments = ["fit", str(self.data), "--out", str(self.folder), "--epochs", "12",
                     "--batch-size", "16", "--lr", "0.01", "--set", "model__hidden=[8]"]  # fmt: skip
        if list(self.folder.glob("training*")):
            arguments.append("--resume")
        elif (self.folder / "classifier.safetensors").exists():
            arguments.append("--overwrite")
        return start(arguments, self.home, writes=writes)

    def check(self):
        """Refuse anything half written."""
        for path in self.folder.glob("[!.]*.safetensors"):
            load_checkpoint(path)

    def result(self):
        """Return what the folder holds: the names, and the model without its times."""
        names = sorted(path.name for path in self.folder.iterdir())
        state = load_checkpoint(self.folder / "classifier.safetensors")
        return names, _plain(state)


class Compare:
    """``tailbatch compare`` into the folder ``store``."""

    name = "compare"

    def __init__(self, home, address):
        self.home, self.folder = home, home / "store"
        self.home.mkdir()
        self.data = tiny_file(home)

    def start(self, writes=None):
        arguments = ["compare", str(self.data), "--store", str(self.folder), "--workers", "1",
                     "--strategies", "adaptive", "--folds", "2", "--epochs", "11",
                     "--batch-size", "16", "--lr", "0.01"]  # fmt: skip
        return start(arguments, self.home, writes=writes)

    def check(self):
        """Refuse a store with a damaged file, or with arrays that cannot be read."""
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
            if (path.parent != runs or path.name[0] == ".") and "compare-files" not in path.parts
        ]
        names = sorted(str(path.relative_to(self.folder)) for path in others)
        # A dataset's facts are kept under the place of its file.
        return contents(store), [re.sub(r"[0-9a-f]{32}", "digest", name) for name in names]


class Get:
    """``tailbatch datasets get`` into the folder ``cache``."""

    name = "datasets get"

    def __init__(self, home, address):
        self.home, self.folder, self.address = home, home / "cache", address
        self.home.mkdir()

    def start(self, writes=None):
        environment = {"TAILBATCH_CACHE": str(self.folder), "TAILBATCH_DATA": ""}
        url = f"{self.address}/{'slow' if writes is None else 'good'}"
        arguments = ["datasets", "get", "yeast"]
        return start(arguments, self.home, environment=environment, url=url, writes=writes)

    def check(self):
        """Refuse a file under the dataset's name that is not the whole one."""
        path = self.folder / "yeast" / "yeast.arff"
        assert not path.exists() or path.read_bytes() == CONTENT

    def result(self):
        """Return all names and the file."""
        names = sorted(path.name for path in self.folder.rglob("*"))
        return names, (self.folder / "yeast" / "yeast.arff").read_bytes()


COMMANDS = {"fit": Fit, "compare": Compare, "get": Get}


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
    """Run a command to its end, twice; return its result, its seconds, and how often it writes."""
    for attempt in ("first", "second"):  # the first also starts the process that others fork from
        whole = COMMANDS[command](home / attempt, address)
        began = time.monotonic()
        ended = whole.start(Writes(whole.folder)).end()
        assert ended.code == 0, ended.said
        seconds = time.monotonic() - began
    return whole.result(), seconds, ended.writes
