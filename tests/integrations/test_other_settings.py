"""Every adapter refuses a state that was saved with other settings, and says which."""

import copy

import pytest
import torch
from accelerate import Accelerator
from lightning.pytorch import Trainer
from torch.utils.data import TensorDataset

from integrations import huggingface_work
from integrations.streams import N_SAMPLES, losses, selector
from tailbatch.errors import SelectionError
from tailbatch.integrations.huggingface import AcceleratedLoader
from tailbatch.integrations.lightning import SelectionCallback
from tailbatch.integrations.pytorch import SelectiveLoader
from tailbatch.training import DistributedSelector

ROWS = TensorDataset(torch.arange(float(N_SAMPLES)))
NAMED = r"saved with selection_pressure 64, this selector has 2"


def accelerated(chosen):
    accelerator = Accelerator(cpu=True)
    AcceleratedLoader(accelerator, ROWS, chosen)
    return accelerator


def loader(saved, other, folder):
    state = SelectiveLoader(ROWS, saved).state_dict()
    SelectiveLoader(ROWS, other).load_state_dict(state)


def distributed(saved, other, folder):
    DistributedSelector(other).load_state_dict(DistributedSelector(saved).state_dict())


def lightning(saved, other, folder):
    torch.save(SelectionCallback(saved).state_dict(), folder / "callback.pt")
    state = torch.load(folder / "callback.pt", weights_only=True)
    callback = SelectionCallback(other)
    Trainer(callbacks=[callback], logger=False, accelerator="cpu")
    callback.load_state_dict(state)


def accelerate(saved, other, folder):
    accelerated(saved).save_state(folder)
    accelerated(other).load_state(folder)


def transformers(saved, other, folder):
    huggingface_work.make_trainer(folder, saved).train()
    huggingface_work.make_trainer(folder, other).train(True)


@pytest.mark.parametrize("adapter", [loader, distributed, lightning, accelerate, transformers])
def test_a_state_of_another_pressure_is_refused(adapter, tmp_path):
    other = selector(selection_pressure=2)
    before = other.digest()
    with pytest.raises(SelectionError, match=NAMED):
        adapter(selector(), other, tmp_path)
    assert other.digest() == before


def test_losses_gathered_more_seldom_are_another_setting():
    every, seldom = selector(max_lag=3), DistributedSelector(selector(max_lag=3), gather_every=4)
    state = seldom.state_dict()
    with pytest.raises(SelectionError, match=r"gather_every 4, this DistributedSelector has 1"):
        DistributedSelector(every).load_state_dict(state)
    with pytest.raises(SelectionError, match=r"gather_every 1, this DistributedSelector has 4"):
        seldom.load_state_dict(every.state_dict())
    seldom.load_state_dict(state)


def test_a_copied_view_goes_on_where_the_original_stands():
    original, whole = DistributedSelector(selector()), []
    for index in original:
        if len(whole) == 3:
            other = copy.deepcopy(original)
        whole.append(index.tolist())
        original.observe(losses(index))
    rest = []
    for index in other:
        rest.append(index.tolist())
        other.observe(losses(index))
    assert rest == whole[3:]
