"""Adapters know how long a training is: at most a tenth of it is a warm-up that nobody asked for."""

import logging

import pytest

from integrations import huggingface_work, lightning_work
from integrations.streams import labels
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader
from tailbatch.selection import make_selector
from tailbatch.training import DistributedSelector


def lightning(folder, chosen, **limits):
    limits = {"max_epochs": -1, **limits}
    trainer = lightning_work.make_trainer(chosen, None, None, **limits)
    loader = SelectiveLoader(IndexedDataset(lightning_work.ROWS), chosen)
    trainer.fit(lightning_work.Tiny(), loader)


def huggingface(folder, chosen, *, max_epochs=3, **limits):
    trainer = huggingface_work.make_trainer(folder, chosen, **limits)
    trainer.args.num_train_epochs = max_epochs
    trainer.train()


def made(**options):
    return make_selector("adaptive", labels(), weights=1.0, batch_size=16, **options)


@pytest.mark.parametrize("train", [lightning, huggingface])
@pytest.mark.parametrize(
    ("limits", "warm_up"),
    [({"max_epochs": 3}, 0), ({"max_epochs": 10}, 1), ({"max_steps": 7}, 0)],
)
@pytest.mark.parametrize("view", [lambda chosen: chosen, DistributedSelector])
def test_a_tenth_of_the_epochs_is_warm_up(tmp_path, train, limits, warm_up, view):
    chosen = made()
    train(tmp_path, view(chosen), **limits)
    assert chosen.warm_up_epochs == warm_up
    assert chosen.epoch > warm_up, "it has selected"


@pytest.mark.parametrize("train", [lightning, huggingface])
def test_a_warm_up_that_was_asked_for_is_kept_and_told(tmp_path, train, caplog):
    chosen = made(warm_up_epochs=2)
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        train(tmp_path, chosen, max_epochs=2)
    assert chosen.warm_up_epochs == 2
    assert "all 2 epochs are warm-up, so adaptive never draws a batch" in caplog.text
