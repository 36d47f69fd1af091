"""A small problem, and trainings of it."""

import numpy as np
import pytest

from tailbatch.data import MultiLabelDataset, Parts, split, stratified_split
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Trainer


@pytest.fixture(scope="session")
def parts() -> Parts:
    """90 training rows of six features; a common, a rare and a very rare label."""
    X = np.random.default_rng(0).random((120, 6))
    data = MultiLabelDataset.from_arrays(X, X[:, :3] > [0.5, 0.8, 0.9])
    return split(data, stratified_split(data.Y, validation=0.125, test=0.125, seed=0))


@pytest.fixture
def train(parts):
    """Train a model by a plan's fields; returns the model and the training."""

    def train(
        model="mlp",
        strategy="adaptive",
        *,
        pressure=None,
        seed=0,
        parts=parts,
        trainer=None,
        **fields,
    ):
        plan = TrainingPlan(
            **{"epochs": 4, "batch_size": 16, "lr": 0.01, "warm_up_epochs": 1} | fields
        )
        if isinstance(model, str):
            model = make_model(model, parts.train, seed=seed)
        selector = make_selector(
            strategy,
            parts.train.Y,
            X=parts.train.X,
            batch_size=plan.batch_size,
            warm_up_epochs=plan.warm_up_epochs,
            epochs=plan.epochs,
            selection_pressure=pressure,
            seed=seed,
        )
        return model, Trainer(plan, seed=seed, **(trainer or {})).fit(model, parts, selector)

    return train
