"""The host program's random state is the same after each of our entry points as before it."""

import random

import numpy as np
import pytest
import torch

from study_samples import run_here, tiny_file, tiny_study
from tailbatch.data import MultiLabelDataset, load_dataset, split, stratified_folds
from tailbatch.estimator import TailbatchClassifier
from tailbatch.imbalance import selection_weights
from tailbatch.models import MODELS, make_model
from tailbatch.report.description import describe
from tailbatch.report.page import write_report
from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.selection import STRATEGIES, make_selector
from tailbatch.training import Trainer


def global_state():
    """Return the state of every generator that a host program may share with us."""
    return (
        random.getstate(),
        [
            part.tobytes() if isinstance(part, np.ndarray) else part
            for part in np.random.get_state()
        ],
        torch.get_rng_state().numpy().tobytes(),
    )


@pytest.fixture(autouse=True)
def host():
    """Draw from each generator, so that a state put back to its start would be noticed."""
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    random.random(), np.random.standard_normal(), torch.rand(1)
    before = global_state()
    yield
    assert global_state() == before


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.random((90, 6))
    return MultiLabelDataset.from_arrays(X, X[:, :4] > [0.3, 0.5, 0.7, 0.85])


@pytest.fixture(scope="module")
def parts(data):
    return split(data, stratified_folds(data.Y, n_folds=3, seed=0)[0])


def test_reading_and_describing_and_splitting(tmp_path):
    dataset = load_dataset("debtags")
    describe(dataset.take(np.arange(500)))
    load_dataset(tiny_file(tmp_path))
    stratified_folds(dataset.Y[:500], n_folds=5, seed=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_selecting(strategy, data):
    selection_weights(data.X, data.Y)
    selector = make_selector(strategy, data.Y, X=data.X, batch_size=16, epochs=3, warm_up_epochs=1)
    for _ in range(3):
        for index in selector:
            losses = np.linspace(0, 1, 4 * len(index)).reshape(-1, 4)
            selector.mean(losses)
            selector.observe(losses)
    selector.diagnostics()
    selector.load_state_dict(selector.state_dict())


@pytest.mark.parametrize("model", MODELS)
def test_training(model, parts, tmp_path):
    selector = make_selector("adaptive", parts.train.Y, X=parts.train.X, batch_size=16)
    made = make_model(model, parts.train, seed=0)
    checkpoint = tmp_path / "training.safetensors"
    plan = TrainingPlan(epochs=2, batch_size=16, warm_up_epochs=1, sample_loss_epochs=(1,))
    Trainer(plan, checkpoint=checkpoint, checkpoint_every=1).fit(made, parts, selector)
    assert checkpoint.exists()


@pytest.mark.parametrize("random_state", [0, None])
def test_the_estimator(random_state, data, tmp_path):
    settings = {"epochs": 2, "warm_up_epochs": 1, "thresholds": "tuned"}
    classifier = TailbatchClassifier(random_state=random_state, **settings).fit(data.X, data.Y)
    classifier.save(tmp_path)
    TailbatchClassifier.load(tmp_path).predict(data.X)


def test_a_study_and_its_report(tmp_path):
    store = ResultStore(tmp_path / "store")
    run_here(tiny_study(tiny_file(tmp_path), epochs=3), store)
    write_report(store.path, tmp_path / "report.html")
    assert len(store.frame()) == 4


def test_a_failed_training_puts_the_state_back(parts):
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(6, 4)

        def forward(self, x):
            torch.rand(1)
            raise RuntimeError("broken in the middle of a step")

    model = make_model(lambda n_features, n_labels: Broken(), parts.train, seed=0)
    selector = make_selector("random", parts.train.Y, batch_size=16)
    with pytest.raises(RuntimeError, match="broken in the middle"):
        Trainer(TrainingPlan(epochs=1, batch_size=16)).fit(model, parts, selector)
