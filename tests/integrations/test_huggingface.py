import numpy as np
import pytest
from accelerate import Accelerator
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset
from transformers import PretrainedConfig, Trainer, TrainingArguments

from integrations.huggingface_work import (
    Rows,
    TinyModel,
    X,
    Y,
    accelerate,
    accelerate_killed,
    accelerate_rank,
    make_trainer,
    train,
    train_killed,
    train_rank,
)
from integrations.ranks import run_killed, run_ranks
from integrations.streams import selector, stream
from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.integrations.huggingface import AcceleratedLoader, SelectiveTrainerMixin
from tailbatch.integrations.pytorch import IndexedDataset
from tailbatch.training import DistributedSelector

ROWS = IndexedDataset(TensorDataset(X, Y))


# ---- Accelerate ----------------------------------------------------------------------------------


def test_accelerate_draws_what_the_selector_draws(tmp_path):
    seen, _, _ = accelerate(tmp_path)
    assert seen == stream(selector())


def test_accelerate_steps_at_the_end_of_an_epoch_too(tmp_path):
    _, steps, _ = accelerate(tmp_path, accumulate=4)
    assert steps == [False, False, False, True, False, True] * 3


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"accumulate": 2}])
def test_accelerate_resumes_after_a_kill(tmp_path, options):
    whole, steps, weights = accelerate(tmp_path / "whole", **options)
    run_killed(accelerate_killed, tmp_path / "killed", options)
    seen, more, resumed = accelerate(tmp_path / "killed", resume=True, **options)
    assert (seen, more) == (whole[8:], steps[8:])
    assert resumed == weights


def test_accelerate_on_two_processes(tmp_path):
    whole = run_ranks(accelerate_rank, 2, tmp_path / "whole")
    for left, right, batch in zip(whole[0][0], whole[1][0], stream(selector()), strict=True):
        assert left + right == batch
    run_ranks(accelerate_rank, 2, tmp_path / "killed", False, 10)
    resumed = run_ranks(accelerate_rank, 2, tmp_path / "killed", True)
    for before, after in zip(whole, resumed, strict=True):
        assert after[0] == before[0][8:]
        assert after[2] == before[2]


def test_an_ordinary_loader_that_is_prepared_reads_ahead_and_is_told():
    loader = Accelerator(cpu=True).prepare(DataLoader(ROWS, batch_sampler=selector()))
    with pytest.raises(StaleSelectionError, match=r"if a loader reads ahead .* with max_lag=1"):
        next(iter(loader))


# ---- Trainer -------------------------------------------------------------------------------------


def test_the_trainer_draws_what_the_selector_draws(tmp_path):
    seen, _, _ = train(tmp_path)
    assert seen == stream(selector())


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, 8),
        ({"gradient_accumulation_steps": 4, "max_lag": 3, "save_steps": 3}, 10),
        ({"dataloader_num_workers": 2, "max_lag": 4}, 8),
    ],
)
def test_the_trainer_resumes_after_a_kill(tmp_path, options, batches):
    whole, logged, weights = train(tmp_path / "whole", **options)
    steps = options.get("save_steps", 8)
    run_killed(train_killed, tmp_path / "killed", {"kill_at": steps + 1, **options})
    seen, more, resumed = train(tmp_path / "killed", resume=True, **options)
    assert seen == whole[batches:]
    assert more == logged
    assert resumed == weights


def test_the_trainer_resumes_at_the_end_of_an_epoch(tmp_path):
    whole, _, weights = train(tmp_path / "whole", save_steps=6)
    seen, _, resumed = train(tmp_path, resume=str(tmp_path / "whole" / "checkpoint-6"))
    assert seen == whole[6:]
    assert resumed == weights


def test_the_trainer_on_two_processes(tmp_path):
    alone = train(tmp_path / "alone")
    whole = run_ranks(train_rank, 2, tmp_path / "whole")
    for left, right, batch in zip(whole[0][0], whole[1][0], alone[0], strict=True):
        assert left + right == batch
    assert np.array(whole[0][2]) == pytest.approx(np.array(alone[2]), rel=1e-4)
    run_ranks(train_rank, 2, tmp_path / "killed", None, 9)
    resumed = run_ranks(train_rank, 2, tmp_path / "killed", True)
    for before, after in zip(whole, resumed, strict=True):
        assert after[0] == before[0][8:]
        assert after[2] == before[2]


# ---- misuse --------------------------------------------------------------------------------------


class TwoProcesses:
    num_processes = 2


def test_misuse_says_what_to_change(tmp_path):
    with pytest.raises(SelectionError, match=r"give the loader DistributedSelector\(selector\)"):
        AcceleratedLoader(TwoProcesses(), ROWS, selector())
    trainer = make_trainer(tmp_path, selector(), gradient_accumulation_steps=2)
    with pytest.raises(SelectionError, match=r"make it with max_lag=1, .*accumulation_steps=1"):
        trainer.train()
    with pytest.raises(SelectionError, match=r"ignore_data_skip=True .*: leave it False"):
        make_trainer(tmp_path, selector(), ignore_data_skip=True)
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(SelectionError, match=r"checkpoint-3 has no selector.safetensors"):
        make_trainer(tmp_path, DistributedSelector(selector())).train(True)


class OwnLoss(Trainer):
    """A Trainer that never heard of selectors."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = 2 * binary_cross_entropy_with_logits(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss


class Forgetful(OwnLoss):
    def compute_loss(self, *args, **kwargs):
        both = super().compute_loss(*args, **kwargs)
        return both[0] if isinstance(both, tuple) else both


def made(kind, folder, **options):
    arguments = TrainingArguments(
        str(folder), max_steps=3, report_to="none", disable_tqdm=True, use_cpu=True
    )
    model = TinyModel(PretrainedConfig())
    return kind(model=model, args=arguments, train_dataset=Rows(), **options)


def test_the_order_of_the_mixin_is_told(tmp_path):
    with pytest.raises(SelectionError, match=r"write class T\(SelectiveTrainerMixin, OwnLoss\)"):
        type("T", (OwnLoss, SelectiveTrainerMixin), {})
    behind = type("Behind", (OwnLoss, SelectiveTrainerMixin, Trainer), {})
    inside = type(
        "Inside", (SelectiveTrainerMixin, Trainer), {"compute_loss": OwnLoss.compute_loss}
    )
    for kind, named in ((behind, "OwnLoss"), (inside, "Inside")):
        with pytest.raises(
            SelectionError, match=rf"{named}\.compute_loss never .* the mixin first"
        ):
            made(kind, tmp_path, selector=selector()).train()
    forgetful = type("Forgetting", (SelectiveTrainerMixin, Forgetful), {})
    with pytest.raises(SelectionError, match=r"must return \(loss, outputs\)"):
        made(forgetful, tmp_path, selector=selector()).train()


def test_a_compute_loss_behind_the_mixin_is_trained_on(tmp_path):
    chosen = selector()
    trainer = made(type("Right", (SelectiveTrainerMixin, OwnLoss), {}), tmp_path, selector=chosen)
    plain = made(type("Plain", (SelectiveTrainerMixin, Trainer), {}), tmp_path, selector=selector())
    assert trainer.train().training_loss == pytest.approx(2 * plain.train().training_loss, rel=0.01)
    assert chosen.diagnostics().lag == 0


def test_other_losses_say_what_to_do(tmp_path):
    kind = type("Right", (SelectiveTrainerMixin, Trainer), {})
    with pytest.raises(
        SelectionError, match=r"loss must be one of tailbatch\.losses, .* got a str"
    ):
        made(kind, tmp_path, selector=selector(), loss="weighted_bce")
