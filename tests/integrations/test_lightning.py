import pytest
from torch.utils.data import DataLoader

from integrations.lightning_work import (
    ROWS,
    Tiny,
    make_trainer,
    refuse_rank,
    train,
    train_killed,
    train_rank,
)
from integrations.ranks import run_killed, run_ranks
from integrations.streams import losses, selector, stream
from tailbatch.errors import SelectionError
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader


def checkpoint(folder):
    (path,) = folder.glob("*.ckpt")
    return path


# With two workers the whole epoch of 6 batches has been read when batch 2 of it ends.
@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, 8), ({"workers": 2}, 8), ({"accumulate_grad_batches": 2, "save_every": 4}, 8)],
)
def test_a_killed_training_resumes_in_the_middle_of_an_epoch(tmp_path, options, steps):
    whole, weights = train(tmp_path / "whole", **options)
    run_killed(train_killed, tmp_path / "killed", options)
    resume = checkpoint(tmp_path / "killed")
    seen, resumed = train(tmp_path / "killed", resume=resume, **options)
    assert seen == whole[steps:]
    assert resumed == weights


def test_a_training_resumes_at_the_end_of_an_epoch(tmp_path):
    whole, weights = train(tmp_path / "whole")
    train(tmp_path / "one", save_every=6, max_epochs=1)
    seen, resumed = train(tmp_path / "more", resume=checkpoint(tmp_path / "one"))
    assert seen == whole[6:]
    assert resumed == weights


def test_validation_does_not_touch_the_selector(tmp_path):
    seen, _ = train(tmp_path, val_check_interval=2)
    assert seen == stream(selector())


def test_epochs_cut_short_go_on_with_the_next_one(tmp_path):
    seen, _ = train(tmp_path, limit_train_batches=2)
    alone, expected = selector(), []
    for epoch in range(3):
        alone.set_epoch(epoch)
        for _, index in zip(range(2), alone, strict=False):
            expected.append(index.tolist())
            alone.observe(losses(index))
    assert seen == expected


def test_two_processes(tmp_path):
    whole = run_ranks(train_rank, 2, tmp_path / "whole")
    for left, right, batch in zip(whole[0][0], whole[1][0], stream(selector()), strict=True):
        assert left + right == batch
    assert whole[0][1] == whole[1][1]
    run_ranks(train_rank, 2, tmp_path / "killed", None, 10)
    resumed = run_ranks(train_rank, 2, tmp_path / "more", checkpoint(tmp_path / "killed"))
    for before, after in zip(whole, resumed, strict=True):
        assert after[0] == before[0][8:]
        assert after[1] == before[1]


def test_misuse_says_what_to_change(tmp_path):
    for error in run_ranks(refuse_rank, 2):
        assert "SelectionCallback the same DistributedSelector(selector)" in str(error)
    chosen = selector()
    trainer = make_trainer(chosen, None, None)
    with pytest.raises(SelectionError, match=r"make it with SelectiveLoader\(dataset, selector\)"):
        trainer.fit(Tiny(), DataLoader(IndexedDataset(ROWS), shuffle=True))

    class Forgetful(Tiny):
        def training_step(self, batch):
            return super().training_step(batch)["loss"]

    with pytest.raises(SelectionError, match=r'must return \{"loss": ..., "losses": ...\}'):
        make_trainer(chosen, None, None).fit(
            Forgetful(), SelectiveLoader(IndexedDataset(ROWS), chosen)
        )
