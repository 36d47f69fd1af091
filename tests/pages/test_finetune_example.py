"""examples/finetune_text.py runs with every loop, resumes after a kill, and on two processes.

So do the snippets of docs/reproduction/finetuning.md.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, TrainingArguments

from integrations.tiny_encoder import texts_and_labels, write_corpus, write_encoder
from tailbatch import TailbatchClassifier
from tailbatch.errors import MissingExtraError
from tailbatch.integrations import encoders
from tailbatch.integrations.encoders import TextEncoder, Tokens, minilm

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "examples" / "finetune_text.py")
LOOPS = ("trainer", "lightning", "plain")
#: Runs a script that is killed in the middle of its second epoch of 5 steps.
KILLED = """
import os, runpy, signal, sys, torch

step, steps = torch.optim.AdamW.step, []

def killed(self, *given, **named):
    steps.append(None)
    if len(steps) == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *given, **named)

torch.optim.AdamW.step = killed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Return the example's arguments for a tiny encoder; texts are found where the catalog looks."""
    write_corpus(tmp_path / "goemotions")
    monkeypatch.setenv("TAILBATCH_DATA", str(tmp_path))
    encoder = write_encoder(tmp_path / "encoder")
    return ["--encoder", encoder, "--epochs", "2", "--lr", "3e-3", "--save-steps", "3"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the example in this process and returns what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [SCRIPT, *arguments])
        runpy.run_path(SCRIPT, run_name="__main__")
        return capsys.readouterr().out

    return run


def scores(printed):
    """Return the lines on how well each label is found."""
    found = re.search(r"of the draws.*Macro-AP [\d.]+", printed, re.DOTALL)
    assert found, printed
    return found[0]


def macro_ap(printed):
    return float(re.search(r"Macro-AP ([\d.]+)", printed)[1])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_killed_run_continues_as_if_nothing_had_been(loop, arguments, run, tmp_path, monkeypatch):
    whole = run(*arguments, "--loop", loop)
    assert int(re.search(r"(\d+)% of the draws", whole)[1]) > 10  # of the rows: 6%
    assert re.search(r"grief [\d.]+ \(\d+ test rows\)", whole)

    step, steps = torch.optim.AdamW.step, []

    def killed(self, *given, **named):
        steps.append(None)
        if len(steps) == 8:  # in the middle of the second epoch of 5 steps
            raise KeyboardInterrupt
        return step(self, *given, **named)

    folder = str(tmp_path / loop)
    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.AdamW, "step", killed)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            run(*arguments, "--loop", loop, "--folder", folder)
    resumed = run(*arguments, "--loop", loop, "--folder", folder)
    assert scores(resumed) == scores(whole)


def snippets():
    """Return the `py` blocks of the page: they need an encoder, so test_pages.py does not run them."""
    page = (ROOT / "docs" / "reproduction" / "finetuning.md").read_text()
    trainer, pipeline = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return trainer, pipeline


def test_the_pages_trainer_learns(tmp_path):
    encoder = write_encoder(tmp_path / "encoder")
    texts, Y = texts_and_labels(80)
    tokens = Tokens(encoder, 16).fit(()).transform(texts).astype(np.int64)
    tokens = np.maximum(tokens - 1, 0)  # 0 stands for no token, and the encoder pads with its own 0
    names = {
        "model": AutoModelForSequenceClassification.from_pretrained(
            encoder, num_labels=Y.shape[1], problem_type="multi_label_classification"
        ),
        "args": TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=1,
            save_strategy="no",
            report_to="none",
            dataloader_pin_memory=False,
        ),
        "train": SimpleNamespace(Y=Y),
        "texts": [
            {"input_ids": row, "labels": labels.astype(np.float32)}
            for row, labels in zip(tokens, Y, strict=True)
        ],
    }
    exec(snippets()[0], names)
    assert names["trainer"].state.global_step == 3  # of 32, 32 and 16 rows
    assert names["selector"].diagnostics().minority_share > Y[:, 2].mean()


def test_the_pages_pipeline_takes_texts_and_is_saved(tmp_path, monkeypatch):
    encoder = write_encoder(tmp_path / "encoder")
    monkeypatch.setattr(encoders, "minilm", lambda: encoder)
    texts, Y = texts_and_labels(80)
    names = {"texts": texts, "Y": Y}
    exec(snippets()[1], names)
    names["classifier"].save(tmp_path / "saved")
    loaded = TailbatchClassifier.load(tmp_path / "saved", model=TextEncoder)
    tokens = names["pipeline"][0].transform(texts[:5])
    np.testing.assert_allclose(
        loaded.predict_proba(tokens), names["pipeline"].predict_proba(texts[:5]), rtol=1e-6
    )


def on_two_processes(script, *arguments):
    """Run a script under torchrun."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *(script, *arguments),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_two_processes_learn_what_one_does_also_when_killed(loop, arguments, run, tmp_path):
    arguments += ["--loop", loop]
    alone, together = run(*arguments), on_two_processes(SCRIPT, *arguments)
    assert scores(together.stdout) == scores(alone)  # the encoder has no dropout

    (tmp_path / "killed.py").write_text(KILLED)
    arguments += ["--folder", str(tmp_path / loop)]
    killed = on_two_processes(str(tmp_path / "killed.py"), SCRIPT, *arguments)
    assert "Macro-AP" not in killed.stdout
    assert "SIGKILL" in killed.stderr
    resumed = on_two_processes(SCRIPT, *arguments)
    assert scores(resumed.stdout) == scores(alone)


@pytest.mark.slow
def test_minilm_learns_emotions(run, benchmark_data, monkeypatch):
    monkeypatch.setenv("TAILBATCH_DATA", str(benchmark_data))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if not (benchmark_data / "goemotions").is_dir():
        pytest.skip("goemotions is not in TAILBATCH_DATA")
    try:
        minilm()
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert macro_ap(run("--rows", "1500", "--loop", "plain")) > 0.1  # 0.136; by chance: 0.04
