"""Small Accelerate and Trainer trainings, in a module of their own so that processes can import them."""

import numpy as np
import torch
from accelerate import Accelerator
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import Dataset, TensorDataset
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from integrations.ranks import kill_this_process
from integrations.streams import N_SAMPLES, labels, losses, selector
from tailbatch.integrations.huggingface import AcceleratedLoader, SelectiveTrainerMixin
from tailbatch.integrations.pytorch import IndexedDataset
from tailbatch.training import DistributedSelector

X = torch.from_numpy(np.random.default_rng(1).random((N_SAMPLES, 4), dtype=np.float32))
Y = torch.from_numpy(labels().astype(np.float32))


# ---- Accelerate ----------------------------------------------------------------------------------


def accelerate(folder, *, workers=0, accumulate=1, kill_at=None, save_at=8, resume=False):
    """Train three epochs; return the batches seen, the optimizer steps and the weights."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    chosen = DistributedSelector(selector(max_lag=2 * workers))
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows = IndexedDataset(TensorDataset(X, Y))
    loader = AcceleratedLoader(accelerator, rows, chosen, num_workers=workers)
    # Twice, because notebooks do.
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loader = accelerator.prepare(loader)
    if resume:
        accelerator.load_state(folder)
    seen, steps = [], []
    for _ in range(chosen.epoch, 3):
        for index, (x, y) in loader:
            seen.append(index.tolist())
            with accelerator.accumulate(model):
                bce = binary_cross_entropy_with_logits(model(x), y, reduction="none")
                accelerator.backward(bce.mean() * chosen.loss_scale(index))
                optimizer.step()
                optimizer.zero_grad()
            steps.append(accelerator.sync_gradients)
            chosen.observe(losses(index), index)
            if len(seen) == save_at and not resume:
                accelerator.save_state(folder)
            if len(seen) == kill_at:
                kill_this_process()
    assert chosen.selector.diagnostics().lag == 2 * workers
    weights = accelerator.unwrap_model(model).weight.detach().numpy().tolist()
    return seen, steps, weights


def accelerate_killed(folder, options):
    accelerate(folder, kill_at=10, **options)


def accelerate_rank(rank, folder, resume=False, kill_at=None):
    return accelerate(folder, resume=resume, kill_at=kill_at if rank == 1 else None)


# ---- Trainer -------------------------------------------------------------------------------------


class Rows(Dataset):
    def __len__(self):
        return N_SAMPLES

    def __getitem__(self, index):
        return {"features": X[index], "labels": Y[index], "unused": 1}


class TinyModel(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)
        self.post_init()

    def forward(self, features, labels=None):
        logits = self.layer(features)
        loss = None if labels is None else binary_cross_entropy_with_logits(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
    def compute_loss(self, model, inputs, *args, **kwargs):
        self.index = inputs.get("selection_index")
        if self.index is not None:
            self.seen.append(self.index.tolist())
        return super().compute_loss(model, inputs, *args, **kwargs)

    def selection_losses(self, outputs, labels):
        assert super().selection_losses(outputs, labels).shape == labels.shape
        # These depend on the samples alone, so that streams can be compared.
        return losses(self.index)


class KillAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            kill_this_process()


def make_trainer(folder, chosen, *, kill_at=None, save_steps=8, loss=None, **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=3,
        learning_rate=0.01,
        save_steps=save_steps,
        eval_strategy="steps",
        eval_steps=5,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    trainer = SelectiveTrainer(
        model=TinyModel(PretrainedConfig()),
        args=arguments,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        selector=chosen,
        loss=loss,
        callbacks=[KillAt(kill_at)],
    )
    trainer.seen = []
    return trainer


def train(folder, *, resume=None, max_lag=0, **options):
    """Train three epochs; return the batches seen, the losses logged and the weights."""
    chosen = selector(max_lag=max_lag)
    trainer = make_trainer(folder, chosen, **options)
    trainer.train(resume)
    assert chosen.diagnostics().lag == max_lag
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return trainer.seen, logged, trainer.model.layer.weight.detach().numpy().tolist()


def train_killed(folder, options):
    train(folder, **options)


def train_rank(rank, folder, resume=None, kill_at=None):
    return train(folder, resume=resume, kill_at=kill_at if rank == 1 else None)
