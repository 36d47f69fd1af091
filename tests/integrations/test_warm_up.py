"""Adapters know how long a training is: at most a tenth of it is a warm-up that nobody asked for."""

import logging

import numpy as np
import pytest

from integrations import huggingface_work, lightning_work
from integrations.streams import labels
from tailbatch.data import MultiLabelDataset, Parts
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import DistributedSelector, Trainer


def lightning(folder, chosen, **limits):
    limits = {"max_epochs": -1, **limits}
    trainer = lightning_work.make_trainer(chosen, None, None, **limits)
    loader = SelectiveLoader(IndexedDataset(lightning_work.ROWS), chosen)
    trainer.fit(lightning_work.Tiny(), loader)


def huggingface(folder, chosen, *, max_epochs=3, **limits):
    trainer = huggingface_work.make_trainer(folder, chosen, **limits)
    trainer.args.num_train_epochs = max_epochs
    trainer.train()


def our_own(folder, chosen, *, max_epochs=None, max_steps=None):
    rows = np.random.default_rng(0).random((len(labels()), 4))
    data = MultiLabelDataset.from_arrays(rows, labels())
    plan = TrainingPlan(epochs=max_epochs or 100, steps=max_steps, batch_size=16, best_by="macro_f")
    Trainer(plan).fit(make_model("mlp", data, seed=0), Parts(data, data, data), chosen)


def made(**options):
    return make_selector("adaptive", labels(), weights=1.0, batch_size=16, **options)


@pytest.mark.parametrize("train", [lightning, huggingface, our_own])
@pytest.mark.parametrize(
    ("limits", "warm_up"),
    [({"max_epochs": 3}, 0), ({"max_epochs": 10}, 1), ({"max_steps": 7}, 0)],
)
@pytest.mark.parametrize("view", [lambda chosen: chosen, DistributedSelector])
def test_a_tenth_of_the_epochs_is_warm_up(tmp_path, train, limits, warm_up, view):
    chosen = made()
    view = (lambda chosen: chosen) if train is our_own else view  # it takes the view by itself
    train(tmp_path, view(chosen), **limits)
    assert chosen.warm_up_epochs == warm_up
    assert chosen.epoch > warm_up, "it has selected"


@pytest.mark.parametrize("train", [lightning, huggingface, our_own])
def test_a_warm_up_that_was_asked_for_is_kept_and_told_once(tmp_path, train, caplog):
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        chosen = made(warm_up_epochs=2, epochs=2)
        train(tmp_path, chosen, max_epochs=2)
    assert chosen.warm_up_epochs == 2
    told = "all 2 epochs are warm-up, so adaptive never draws a batch"
    assert caplog.text.count(told) == 1
