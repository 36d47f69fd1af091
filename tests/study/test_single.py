"""One run: fair, reproducible, resumable, complete."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch

from study_samples import contents, run_here, tiny_study
from tailbatch.data import MultiLabelDataset, save_npz
from tailbatch.errors import TrainingError
from tailbatch.imbalance import minority_labels, rare_labels
from tailbatch.metrics import METRICS
from tailbatch.report.page import _study_files, write_report
from tailbatch.results import RunRecord, TrainingPlan
from tailbatch.study import Study, run
from tailbatch.study.runner import _run_and_keep
from tailbatch.study.sources import parts_of
from tailbatch.training import Callback

STRATEGIES = [
    *("random", "uniform", "balanced", "hard", "adaptive", "chain", "minority", "importance"),
    {"name": "balanced", "corrected": True},
]


def specs_of(study):
    digest = study.sources[0].load().digest
    return study.specs({study.sources[0].name: digest})


@pytest.fixture(scope="module")
def records(tiny):
    """Return every strategy at two pressures and two seeds, on one fold."""
    study = tiny_study(
        tiny,
        strategies=STRATEGIES,
        selection_pressures=[2, "64:1"],
        seeds=[0, 1],
        folds=[0],
        epochs=5,
    )
    return [run(spec, source=study.sources[0])[0] for spec in specs_of(study)]


def test_compared_runs_share_folds_weights_warm_up_steps_and_samples(records):
    groups = {}
    for record in records:
        groups.setdefault((record.spec.fold, record.spec.seed), []).append(record)
    assert [len(group) for group in groups.values()] == [13] * 2  # five have no pressure
    for group in groups.values():
        assert len({record.warm_up_digest for record in group}) == 1
        assert {record.diagnostics["steps"] for record in group} == {20}
        assert {record.diagnostics["drawn_samples"] for record in group} == {5 * 60}
        assert len({tuple(label["positives"] for label in r.labels) for r in group}) == 1
        warm_up = [tuple(epoch["validation"].items()) for r in group for epoch in r.history[2:3]]
        assert len(set(warm_up)) == 1
    assert len({group[0].warm_up_digest for group in groups.values()}) == 2


def test_strategies_part_ways_after_the_warm_up(records):
    group = [r for r in records if (r.spec.fold, r.spec.seed) == (0, 0)]
    last = {r.history[-1]["training_bce"] for r in group}
    assert len(last) == len(group)


def test_a_record_holds_every_metric_and_the_tuned_ones(records):
    for name, metric in METRICS.items():
        assert (name in records[0].test) == (not metric.legacy)
        assert (f"tuned_{name}" in records[0].test) == (metric.needs == "predictions")
        assert (name in records[0].validation) == (not metric.legacy)
    best = records[0].history[records[0].best_epoch - 1]
    assert best["validation"]["macro_auc"] == records[0].validation["macro_auc"]


def test_the_papers_data_is_also_measured_as_its_script_does(tiny):
    study = tiny_study(tiny, strategies=["random"], folds=[0], epochs=3)
    (spec,) = specs_of(replace(study, preparations=["paper"]))
    found = run(spec, source=study.sources[0])[0].test
    assert METRICS.keys() <= found.keys()


def test_a_record_says_what_each_label_got(records):
    label = records[0].labels[-1]
    assert set(label) == {
        "name", "positives", "minority", "f", "auc", "average_precision", "exposure",
    }  # fmt: skip
    assert label["minority"]
    json.loads(records[0].to_json())


def test_only_the_papers_preparations_have_the_papers_minority_labels(tmp_path):
    X = np.random.default_rng(0).random((200, 3))
    Y = np.arange(200)[:, None] < [150, 120, 40, 30, 22, 1]
    path = tmp_path / "freak.npz"
    save_npz(MultiLabelDataset.from_arrays(X, Y[np.random.default_rng(1).permutation(200)]), path)
    study = tiny_study(path, strategies=["random"], folds=[0], epochs=2)
    for preparation, defined in (("full", rare_labels), ("paper", minority_labels)):
        (spec,) = specs_of(replace(study, preparations=[preparation]))
        parts = parts_of(spec, study.sources[0])
        assert parts.minority.tolist() == defined(parts.train.Y).tolist()
        record, arrays = run(spec, source=study.sources[0])
        assert [label["minority"] for label in record.labels] == parts.minority.tolist()
        assert set(arrays) >= {"batch_objectives"}
    assert parts.minority.sum() != rare_labels(parts.train.Y).sum()


def test_arrays_hold_batches_and_sample_losses(tiny):
    study = tiny_study(tiny)
    record, arrays = run(specs_of(study)[0], source=study.sources[0])
    assert arrays["batch_objectives"].shape == (record.diagnostics["steps"],)
    assert arrays["sample_losses_2"].shape == arrays["minority_counts"].shape == (60,)
    # The MLP trains on the sum over labels; the selector observes the mean.
    for epoch in ("2", "best"):
        losses, own = (arrays[f"sample_{kind}_{epoch}"] for kind in ("losses", "objectives"))
        np.testing.assert_allclose(own, losses * len(record.labels), rtol=1e-5)


class Bomb(Callback):
    def __init__(self, step):
        self.step = step

    def on_batch(self, step, steps_per_epoch, objective):
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [3, 9, 23])
def test_an_interrupted_run_ends_as_an_undisturbed_one(tiny, store, tmp_path, step):
    study = tiny_study(tiny, strategies=["adaptive"], n_folds=2, folds=[0])
    (spec,) = specs_of(study)
    source = study.sources[0]
    store.add(*run(spec, source=source))
    checkpoint = tmp_path / "checkpoint.safetensors"
    settings = {"source": source, "checkpoint": checkpoint, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        run(spec, callbacks=[Bomb(step)], **settings)
    assert checkpoint.exists() == (step > 4)
    undisturbed = contents(store)
    store.add(*run(spec, **settings))
    assert contents(store) == undisturbed


def test_a_damaged_checkpoint_is_dropped_and_the_run_starts_over(tiny, store, caplog):
    study = tiny_study(tiny, folds=[0])
    spec = specs_of(study)[0]
    store.checkpoint(spec).parent.mkdir(parents=True)
    store.checkpoint(spec).write_bytes(b"nonsense")
    _run_and_keep(spec, study.sources[0], store, 10)
    assert store.has(spec)
    assert not store.checkpoint(spec).exists()
    assert "the run starts over" in caplog.text


def test_a_run_leaves_random_state_and_threads_of_the_host_alone(tiny):
    study = tiny_study(tiny, folds=[0])
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()
    run(specs_of(study)[0], source=study.sources[0])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.get_num_threads() == before[2]


def test_a_run_that_diverges_says_so(tiny):
    study = tiny_study(tiny, plan=TrainingPlan(epochs=6, batch_size=16, lr=1e30, warm_up_epochs=0))
    with pytest.raises(TrainingError, match="no longer a number"):
        run(specs_of(study)[0], source=study.sources[0])


def test_a_run_without_batches_leaves_a_record_like_any_other(tiny, records):
    study = tiny_study(tiny, models=["logistic"], folds=[0])
    (spec,) = specs_of(study)
    record, arrays = run(spec, source=study.sources[0])
    assert set(record.test) == set(records[0].test)
    assert record.validation["macro_auc"] > 0.8
    assert [label["positives"] for label in record.labels] == [
        label["positives"] for label in records[0].labels
    ]
    assert {label["exposure"] for label in record.labels} == {None}
    assert record.history == ()
    assert arrays == {}
    assert record.diagnostics["chosen"]["C"] in (0.1, 1.0, 10.0)
    again = RunRecord.from_json(record.to_json())
    assert again.spec == spec


def test_runs_without_batches_reach_store_report_and_a_study_file_of_their_own(
    tiny, store, tmp_path
):
    study = tiny_study(tiny, models=[{"name": "mlp", "hidden": [8]}, "logistic"], epochs=2)
    study = replace(study, plan=replace(study.plan, sample_loss_epochs=()))
    outcome = run_here(study, store)
    assert (outcome.done, outcome.failures) == (2 * 3, ())
    assert run_here(study, store).skipped == 6
    write_report(store.path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "logistic on 1 dataset" in page
    files = _study_files([r.spec for r in store.records()], store.datasets(), "again")
    again = {}
    for text in files.values():
        values = tomllib.loads(text) | {"datasets": [str(tiny)]}
        again |= {spec.digest: spec for spec in specs_of(Study.from_dict(values))}
    assert again == {spec.digest: spec for spec in specs_of(study)}
