import numpy as np
import pytest

from integrations.distributed_work import (
    all_streams,
    disagree,
    diverge,
    equalized_gradients,
    fit,
    hung,
    observe_too_few,
    refuse_before_the_first_batch,
    resume_with_another_pressure,
    save_until_killed,
    slices,
    train_on_debtags,
)
from integrations.ranks import run_ranks
from integrations.streams import losses, selector, stream
from tailbatch.errors import SelectionError, TrainingError, TrainingInterrupted
from tailbatch.training import DistributedSelector
from tailbatch.training.ranks import process_group


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_ranks_together_draw_what_one_process_draws(n_ranks):
    alone = all_streams(0)
    ranks = run_ranks(all_streams, n_ranks)
    for name, batches in alone.items():
        for whole, *parts in zip(batches, *(rank[name] for rank in ranks), strict=True):
            index = [sample for part, scale in parts if scale > 0 for sample in part]
            assert index == whole[0], name
            # DDP averages the ranks' means: scaled, that is the mean over the global batch.
            mean = np.mean([scale * losses(part).mean() for part, scale in parts])
            assert mean == pytest.approx(losses(whole[0]).mean())


def test_one_process_draws_what_the_selector_draws():
    assert [index for index, _ in slices("adaptive")] == stream(selector())


def test_gathering_seldom_shows_up_as_lag():
    chosen = DistributedSelector(selector(max_lag=3), gather_every=4)
    for index in chosen:
        chosen.observe(losses(index))
    assert chosen.selector.diagnostics().lag == 3
    assert len(chosen.state_dict()["pending"]) == 0, "the rest is gathered at the end of an epoch"
    for index in chosen:
        chosen.observe(losses(index))
        break
    with pytest.raises(SelectionError, match=r"held back \(gather_every=4\): call flush\(\)"):
        chosen.state_dict()
    chosen.flush()
    assert len(chosen.state_dict()["pending"]) == 0


# ---- ranks that disagree -------------------------------------------------------------------------


def test_ranks_that_differ_are_told_on_every_rank():
    for messages in run_ranks(disagree, 2):
        order = messages.pop("order")
        assert "not at the same batch (they are at [1, 2])" in order
        assert "Accelerate's prepare, a DistributedSampler" in order
        for name, message in messages.items():
            assert "rank 1 holds a different selector than rank 0" in message, name
            assert "same seed and settings, on every rank" in message


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: DistributedSelector(selector(), gather_every=3), r"selector with max_lag=2"),
        (lambda: DistributedSelector(selector(), gather_every=0), r"at least 1, got 0"),
        (lambda: DistributedSelector(range(3)), r"as make_selector returns it, got a range"),
    ],
)
def test_misuse_says_what_to_change(misuse, message):
    with pytest.raises(SelectionError, match=message):
        misuse()


def test_losses_must_fit_the_slice():
    chosen = DistributedSelector(selector(max_lag=1))
    with pytest.raises(SelectionError, match=r"no slice is waiting for losses: draw one first"):
        chosen.observe([1.0])
    batches = iter(chosen)
    index = next(batches)
    with pytest.raises(SelectionError, match=r'the 16 samples .* got 3; .* reduction="none"'):
        chosen.observe([1.0, 2.0, 3.0])
    with pytest.raises(SelectionError, match=r"pass the index as it was drawn here"):
        chosen.observe(losses(index), index[::-1])
    second = next(batches)
    chosen.observe(losses(index))  # of the oldest
    with pytest.raises(SelectionError, match=r"pass the index as it was drawn here"):
        chosen.observe(losses(index), index)
    chosen.observe(losses(second))


def test_the_weights_of_the_oldest_slice_are_taken_once():
    chosen = DistributedSelector(selector("importance", max_lag=1, warm_up_epochs=0))
    batches = iter(chosen)
    first, second = next(batches), next(batches)
    assert chosen.mean(losses(first)) == chosen.mean(losses(first), first)
    with pytest.raises(
        SelectionError, match=r"2 slices are pending, .* after each step, or .* index="
    ):
        chosen.mean(losses(second))
    chosen.observe(losses(first))
    assert chosen.mean(losses(second)) == chosen.mean(losses(second), second)


def test_a_process_without_its_group_is_told(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SelectionError, match=r"init_process_group\(\) before the first batch"):
        next(iter(DistributedSelector(selector())))


# ---- a rank refuses, or hangs --------------------------------------------------------------------


def test_a_rank_that_refuses_losses_tells_the_others_and_the_group_goes_on():
    first, second = run_ranks(observe_too_few, 2)
    assert "another rank failed: rank 1: losses must have one row for each" in first[0]
    assert second[0].startswith("losses must have one row for each of the 8 samples")
    assert (first[1], second[1]) == (0, 0)


def test_a_rank_that_refuses_before_the_first_batch_tells_the_others():
    first, second = run_ranks(refuse_before_the_first_batch, 2)
    assert isinstance(first, SelectionError)
    assert isinstance(second, TrainingError)
    assert str(second) == "another rank failed: rank 0: this rank has no data"


def test_a_rank_that_diverges_ends_the_training_of_all():
    first, second = run_ranks(diverge, 2)
    assert isinstance(first, TrainingError)
    assert isinstance(second, TrainingError)
    assert str(first).startswith("the loss is no longer a number in epoch 1, batch 4")
    assert str(second) == f"another rank failed: rank 0: {first}"


def test_a_rank_with_other_settings_ends_the_training_of_all(tmp_path):
    checkpoint = tmp_path / "training.safetensors"
    run_ranks(fit, 2, checkpoint, 9)
    first, second = run_ranks(resume_with_another_pressure, 2, checkpoint)
    assert "saved with selection_pressure 16, this selector has 2" in str(second)
    assert str(first) == f"another rank failed: rank 1: {second}"


def test_a_rank_that_hangs_is_named_after_the_time_allowed():
    first, second = run_ranks(hung, 2)
    assert first.startswith("rank 1 did not arrive within 3 seconds: check the output")
    assert "TAILBATCH_RANK_TIMEOUT" in first
    assert second == "waited"


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_the_time_allowed_is_a_number_of_seconds(monkeypatch, text):
    monkeypatch.setenv("TAILBATCH_RANK_TIMEOUT", text)
    monkeypatch.setenv("WORLD_SIZE", "2")
    told = r"must be a number of seconds above 0, got"
    with pytest.raises(TrainingError, match=told), process_group():
        pass


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "clif"])
def test_ddp_learns_what_one_process_learns(name):
    alone = train_on_debtags(0, name, 8)
    first, second = run_ranks(train_on_debtags, 2, name, 8)
    assert np.mean([first, second], axis=0) == pytest.approx(alone, rel=1e-4)


# ---- a rank dies ---------------------------------------------------------------------------------


def test_a_group_that_lost_a_rank_continues_from_its_checkpoint(tmp_path):
    path = tmp_path / "selector.pt"
    whole = run_ranks(save_until_killed, 2, path, None)
    survivor, killed = run_ranks(save_until_killed, 2, path, 9)
    assert killed is None
    assert isinstance(survivor, TrainingError)
    assert "rank 1 ended unexpectedly" in str(survivor)
    for before, after in zip(whole, run_ranks(save_until_killed, 2, path, None), strict=True):
        assert before[7:] == after


# ---- the package's own Trainer -------------------------------------------------------------------


def test_the_trainer_learns_on_two_processes_what_it_learns_on_one():
    objectives, best_epoch, _ = fit(0)
    ranks = run_ranks(fit, 2)
    for together in ranks:
        assert together[0] == pytest.approx(objectives, rel=1e-4)
        assert together[1] == best_epoch
    assert ranks[0][2] == ranks[1][2]


def test_ranks_stop_at_the_same_step_and_resume(tmp_path):
    checkpoint = tmp_path / "training.safetensors"
    whole = run_ranks(fit, 2)
    for stopped in run_ranks(fit, 2, checkpoint, 9):
        assert isinstance(stopped, TrainingInterrupted)
    assert run_ranks(fit, 2, checkpoint) == whole


def test_ranks_together_see_the_gradients_that_one_process_sees():
    alone = equalized_gradients(0)
    for rank in run_ranks(equalized_gradients, 2, 2):
        assert rank == pytest.approx(alone)
