"""A command leaves files in its folders alone that it did not make."""

import sys
from contextlib import contextmanager

import pytest

from study_samples import Here, tiny_file
from tailbatch.cli import main, study

HEX = "d41d8cd98f00b204e9800998ecf8427e"
PLACES = ["", "runs", "checkpoints", "studies", "datasets"]


def test_compare_leaves_hidden_folders_of_others_alone(tmp_path, monkeypatch):
    @contextmanager
    def engine(workers, ray):
        yield Here, 1

    theses = [tmp_path / "store" / place / f".backup-{HEX}" / "thesis.tex" for place in PLACES]
    for thesis in theses:
        thesis.parent.mkdir(parents=True)
        thesis.write_text("years of work")
    monkeypatch.setattr(study, "_engine", engine)
    monkeypatch.chdir(tmp_path)
    line = f"tailbatch compare {tiny_file(tmp_path)} --strategies random --n-folds 2 --epochs 1"
    monkeypatch.setattr(sys, "argv", [*line.split(), "--store", "store"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert [thesis.read_text() for thesis in theses] == ["years of work"] * len(PLACES)
