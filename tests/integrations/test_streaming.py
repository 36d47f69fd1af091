"""Streams of shards in a DataLoader, the Hugging Face Trainer, Lightning and WebDataset shards."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from tailbatch.errors import DataError, SelectionError
from tailbatch.integrations.streaming import StreamDataset, tar_rows
from tailbatch.losses import BCE, WeightedBCE
from tailbatch.selection import StreamSelector, count_labels

SIZES = {"a": 40, "b": 70, "c": 55, "d": 33, "e": 61}
RNG = np.random.default_rng(0)
ROWS = {
    shard: [
        {
            "name": f"{shard}{number}",
            "x": torch.tensor(RNG.random(4), dtype=torch.float32),
            "labels": torch.tensor(RNG.random(3) < (0.6, 0.2, 0.1)),
        }
        for number in range(size)
    ]
    for shard, size in SIZES.items()
}
COUNTS = sum(
    (count_labels([row["labels"] for row in rows], shard=shard) for shard, rows in ROWS.items()),
    start=count_labels(torch.zeros(1, 3), shard="none"),
)


def read(shard):
    return iter(ROWS[shard])


def labels_of(row):
    return row["labels"]


def dataset(**settings):
    epochs = settings.pop("epochs", 1)
    selector = StreamSelector(COUNTS, buffer=16, **settings)
    return StreamDataset(list(ROWS), read, labels_of, selector, epochs=epochs)


def expected(epoch, **settings):
    """Return how often each row comes up in an epoch, from the draws of whole shards."""
    selector = StreamSelector(COUNTS, **settings).at(epoch)
    times = Counter()
    for shard, rows in ROWS.items():
        copies, _ = selector.draw([row["labels"] for row in rows], 0, shard=shard)
        times.update({row["name"]: count for row, count in zip(rows, copies.tolist(), strict=True)})
    return +times


def names(batches):
    return [name for batch in batches for name in batch["name"]]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (3, True)])
def test_workers_read_shards_of_their_own_and_no_row_is_drawn_twice(workers, persistent):
    rows = dataset(rate=1.3)
    loader = DataLoader(rows, batch_size=32, num_workers=workers, persistent_workers=persistent)
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        batches = list(loader)
        assert Counter(names(batches)) == expected(epoch, rate=1.3)
    batch = batches[0]
    _, weights = StreamSelector(COUNTS).draw(batch["labels"], 0)
    np.testing.assert_allclose(batch["weight"].numpy(), weights)
    assert expected(0) != expected(1)


@pytest.mark.parametrize(("workers", "epochs"), [(0, 1), (2, 1), (2, 3)])
def test_a_stateful_loader_resumes_in_the_middle_of_an_epoch(workers, epochs):
    def make():
        return StatefulDataLoader(dataset(epochs=epochs), batch_size=16, num_workers=workers)

    loader = make()
    loader.dataset.set_epoch(2)
    seen, state = [], None
    for number, batch in enumerate(loader):
        seen.append(batch["name"])
        if number == 6 * epochs:
            state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert [batch["name"] for batch in resumed] == seen[6 * epochs + 1 :]


def test_rows_of_any_kind_come_with_their_weight_and_are_decoded_only_if_chosen():
    decoded = []

    def decode(row):
        decoded.append(row["name"])
        return row["name"]

    rows = StreamDataset(
        list(ROWS), read, labels_of, StreamSelector(COUNTS, rate=0.2), prepare=decode
    )
    pairs = list(rows)
    assert [name for name, _ in pairs] == decoded
    assert Counter(decoded) == expected(0, rate=0.2)
    assert len(decoded) < 0.3 * sum(SIZES.values())
    assert all(isinstance(weight, float) for _, weight in pairs)


def test_too_few_shards_and_equal_names_are_refused():
    with pytest.raises(SelectionError, match="5 shards cannot be dealt out to 6 readers"):
        list(DataLoader(dataset(), num_workers=6))
    with pytest.raises(SelectionError, match="must differ by name"):
        StreamDataset(["a", "a"], read, labels_of, StreamSelector(COUNTS))


# ---- Hugging Face Trainer and Lightning -------------------------------------------------------


def test_the_trainer_takes_a_stream_and_resumes_with_the_same_rows(tmp_path):
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
    from transformers.modeling_outputs import SequenceClassifierOutput

    class Tiny(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.layer = torch.nn.Linear(4, 3)
            self.post_init()

        def forward(self, x, labels=None):
            return SequenceClassifierOutput(logits=self.layer(x))

    loss = WeightedBCE(3, weights=StreamSelector(COUNTS).positive_weights)

    class WeightedTrainer(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            seen.append(inputs.pop("name"))
            weight, labels = inputs.pop("weight"), inputs.pop("labels").float()
            outputs = model(**inputs)
            value = (weight * loss.rows(outputs.logits, labels)).mean()
            return (value, outputs) if return_outputs else value

    def collate(rows):
        batch = {key: torch.stack([row[key] for row in rows]) for key in ("x", "labels")}
        weight = torch.tensor([row["weight"] for row in rows], dtype=torch.float32)
        return {**batch, "weight": weight, "name": [row["name"] for row in rows]}

    def train(folder, resume=None, **more):
        torch.manual_seed(0)
        arguments = TrainingArguments(
            str(folder),
            max_steps=24,
            per_device_train_batch_size=16,
            remove_unused_columns=False,
            save_steps=10,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **more,
        )
        trainer = WeightedTrainer(
            Tiny(PretrainedConfig()),
            arguments,
            train_dataset=dataset(epochs=2),
            data_collator=collate,
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer.model.layer.weight.detach().clone()

    seen = []
    whole = train(tmp_path / "whole")
    rows = [name for batch in seen for name in batch]
    epoch = sum(expected(0).values())
    assert Counter(rows[:epoch]) == expected(0), "the first epoch"
    assert Counter(rows[epoch:]) <= expected(1), "and the next one"
    before, seen = seen, []
    resumed = train(tmp_path / "whole", str(tmp_path / "whole" / "checkpoint-20"))
    assert seen == before[20:]
    assert torch.equal(whole, resumed)


def test_lightning_takes_a_stream(tmp_path):
    import lightning.pytorch as pl

    rows = dataset()

    class Tiny(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.loss, self.seen = torch.nn.Linear(4, 3), BCE(3), []

        def on_train_epoch_start(self):
            rows.set_epoch(self.current_epoch)
            self.seen.append([])

        def training_step(self, batch):
            self.seen[-1].extend(batch["name"])
            return (
                batch["weight"] * self.loss.rows(self.layer(batch["x"]), batch["labels"])
            ).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    model = Tiny()
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(model, DataLoader(rows, batch_size=16, num_workers=2))
    assert [Counter(names) for names in model.seen] == [expected(0), expected(1)]


# ---- tar shards --------------------------------------------------------------------------------


def write_shard(path, samples):
    with tarfile.open(path, "w") as tar:
        for key, files in samples.items():
            for extension, content in files.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def tar_labels(sample):
    return json.loads(sample["json"])


def tar_decoded(sample):
    return {
        "name": sample["__key__"],
        "x": torch.frombuffer(bytearray(sample["bin"]), dtype=torch.float32),
    }


@pytest.fixture
def tars(tmp_path):
    paths = []
    for shard in ("a", "b", "c"):
        paths.append(str(tmp_path / f"{shard}.tar"))
        write_shard(
            paths[-1],
            {
                row["name"]: {
                    "bin": row["x"].numpy().tobytes(),
                    "json": json.dumps(row["labels"].int().tolist()).encode(),
                }
                for row in ROWS[shard]
            },
        )
    return paths


def test_tar_shards_are_read_by_workers(tars):
    counts = count_labels(tar_labels(sample) for path in tars for sample in tar_rows(path))
    assert counts.n_samples == 40 + 70 + 55
    rows = StreamDataset(tars, tar_rows, tar_labels, StreamSelector(counts), prepare=tar_decoded)
    batches = list(DataLoader(rows, batch_size=16, num_workers=2))
    alone = list(DataLoader(rows, batch_size=16))
    assert Counter(names(batches)) == Counter(names(alone))
    by_name = {row["name"]: row["x"] for shard in ROWS.values() for row in shard}
    for batch in batches:
        for name, x in zip(batch["name"], batch["x"], strict=True):
            assert torch.equal(x, by_name[name])


def test_a_tar_shard_that_is_cut_short_or_missing_is_named(tars, tmp_path):
    whole = Path(tars[0]).read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: len(whole) // 2 + 700])
    for path in (str(cut), str(tmp_path / "none.tar")):
        with pytest.raises(DataError, match=f"the shard {path} cannot be read to its end"):
            list(tar_rows(path))
