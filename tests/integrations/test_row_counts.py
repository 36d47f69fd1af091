"""A selector made for other rows than the loader's is refused by every adapter at once."""

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, TensorDataset

from integrations import huggingface_work, lightning_work
from integrations.streams import N_SAMPLES, selector
from tailbatch.data import load_dataset, split, stratified_split
from tailbatch.errors import SelectionError, TrainingError
from tailbatch.integrations.huggingface import AcceleratedLoader
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader, check_loader
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import UniformSelector
from tailbatch.training import DistributedSelector, Trainer

ROWS = TensorDataset(torch.arange(2.0 * N_SAMPLES))


def plain(chosen, folder):
    SelectiveLoader(ROWS, chosen)


def indexed(chosen, folder):
    SelectiveLoader(IndexedDataset(ROWS), chosen)


def several(chosen, folder):
    SelectiveLoader(ROWS, DistributedSelector(chosen))


def accelerate(chosen, folder):
    AcceleratedLoader(Accelerator(cpu=True), ROWS, chosen)


def lightning(chosen, folder):
    loader = DataLoader(IndexedDataset(ROWS), batch_sampler=chosen)
    lightning_work.make_trainer(chosen, None, None).fit(lightning_work.Tiny(), loader)


def transformers(chosen, folder):
    trainer = huggingface_work.make_trainer(folder, chosen)
    trainer.train_dataset = [trainer.train_dataset[0]] * 2 * N_SAMPLES
    trainer.train()


@pytest.mark.parametrize("adapter", [plain, indexed, several, accelerate, lightning, transformers])
def test_an_adapter_refuses_other_rows(adapter, tmp_path):
    told = rf"the selector draws from {N_SAMPLES} rows, the dataset has {2 * N_SAMPLES}: make"
    with pytest.raises(SelectionError, match=told):
        adapter(selector(), tmp_path)


def test_the_trainer_refuses_other_rows():
    data = load_dataset("debtags").take(range(100))
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    model = make_model("mlp", parts.train, seed=0)
    trainer = Trainer(TrainingPlan(epochs=1, batch_size=16))
    with pytest.raises(TrainingError, match=r"draws from 100 rows, .* has 61: .* parts\.train\.Y"):
        trainer.fit(model, parts, UniformSelector(100, batch_size=16))


def test_a_dataset_of_unknown_length_is_taken_as_it_is():
    class Unsized(Dataset):
        pass

    check_loader(selector(), Unsized())
    check_loader(selector(), IndexedDataset(Unsized()))
