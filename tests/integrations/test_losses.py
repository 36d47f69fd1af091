"""The losses in other people's trainers."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

from tailbatch import losses
from tailbatch.models import set_prior_bias

RNG = np.random.default_rng(0)
X = RNG.random((64, 4)).astype(np.float32)
Y = X[:, :3] > np.array([0.5, 0.8, 0.9])
WEIGHTS = torch.from_numpy(losses.weighted_bce(Y).positive_weights).float()


def layer():
    made = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(made.weight)
    set_prior_bias(made, Y, WEIGHTS)
    return made


def expected(batch_size, steps, lr):
    """Plain gradient steps on torch's own weighted cross-entropy, in the order of the rows."""
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        rows = slice(step * batch_size, (step + 1) * batch_size)
        value = torch.nn.functional.binary_cross_entropy_with_logits(
            model(torch.from_numpy(X[rows])), torch.from_numpy(Y[rows]).float(),
            pos_weight=WEIGHTS, reduction="sum",
        )  # fmt: skip
        optimizer.zero_grad()
        (value / batch_size).backward()
        optimizer.step()
    return model.weight.detach()


class Encoder(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = layer()
        self.post_init()
        set_prior_bias(self.layer, Y, WEIGHTS)

    def forward(self, features, labels=None):
        return SequenceClassifierOutput(logits=self.layer(features))


def test_a_loss_is_hugging_faces_compute_loss_func(tmp_path):
    loss = losses.weighted_bce(Y)
    rows = [{"features": x, "labels": y} for x, y in zip(X, Y.astype(np.float32), strict=True)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=16, learning_rate=0.1,
        lr_scheduler_type="constant", optim="sgd", max_grad_norm=0, report_to="none",
        disable_tqdm=True, use_cpu=True, save_strategy="no", train_sampling_strategy="sequential",
    )  # fmt: skip
    model = Encoder(PretrainedConfig())
    with torch.no_grad():
        model.layer.weight.zero_()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        compute_loss_func=lambda outputs, labels, **_: loss(outputs.logits, labels),
    )
    trainer.train()
    assert torch.allclose(model.layer.weight, expected(16, 4, 0.1), rtol=1e-4, atol=1e-6)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = layer()
        self.loss = losses.weighted_bce(Y)

    def training_step(self, batch):
        x, y = batch
        return self.loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_loss_is_a_part_of_a_lightning_module(tmp_path):
    module = Module()
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    trainer.fit(module, DataLoader(rows, batch_size=16))
    assert torch.allclose(module.layer.weight, expected(16, 4, 0.1), rtol=1e-4, atol=1e-6)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.allclose(state["loss.positive_weight"], WEIGHTS)
