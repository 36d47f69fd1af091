"""The weights of corrected selection reach the objective of every model that can use them."""

import numpy as np
import pytest
import torch
from torch import nn

from tailbatch.errors import ModelError, TrainingError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.models import MODELS, MultiLabelModel, Step, make_model, seeded
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Trainer
from tailbatch.training.distributed import DistributedSelector

SEPARABLE = [name for name in MODELS if name != "c2ae"]


def batch(parts, size=12):
    rows = [parts.train.X[:size].astype(np.float32), parts.train.Y[:size].astype(np.float32)]
    return [torch.from_numpy(np.asarray(each)) for each in rows]


@pytest.mark.parametrize("name", SEPARABLE)
def test_weights_reweigh_the_samples_of_the_objective(parts, name):
    model = make_model(name, parts.train, seed=0)
    x, y = batch(parts)
    weights = torch.rand(12, generator=torch.Generator().manual_seed(1)) / 6

    def step(weights):
        with seeded(0, "test"):  # the same noise
            return model.step(x, y, weights)

    plain, weighted, alike = step(None), step(weights), step(torch.full((12,), 1 / 12))
    samples = plain.sample_objective
    torch.testing.assert_close(alike.objective, plain.objective)
    torch.testing.assert_close(
        weighted.objective - plain.objective, (samples * weights).sum() - samples.mean()
    )
    assert torch.equal(weighted.sample_objective, samples)


def test_a_model_that_compares_samples_says_why_not(parts):
    model = make_model("c2ae", parts.train, seed=0)
    with pytest.raises(ModelError, match=r"c2ae cannot be trained with corrected.*orthogonality"):
        model.step(*batch(parts), torch.ones(12))


class Old(MultiLabelModel):
    """A model of one's own that knows no weights."""

    def __init__(self, n_features, n_labels):
        super().__init__(n_features, n_labels)
        self.linear = nn.Linear(n_features, n_labels)

    def forward(self, x):
        return self.linear(x)

    def step(self, x, y):
        logits = self(x)
        losses = nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none").sum(1)
        return Step(losses.mean(), logits.detach(), losses.detach(), {})


def test_a_model_that_takes_no_weights_is_told_what_to_write(parts, train):
    with pytest.raises(TrainingError, match=r"Old.step takes no weights, which importance with"):
        train(Old(6, 3), strategy="importance", warm_up_epochs=0)
    train(Old(6, 3), strategy="balanced")


def test_the_trainers_gradient_is_that_of_all_rows_on_average(parts):
    model = make_model("mlp", parts.train, seed=0, dropout=0.0).double()
    n = parts.train.n_samples
    X, Y = (torch.from_numpy(np.asarray(a, np.float64)) for a in (parts.train.X, parts.train.Y))

    def gradient(objective):
        return torch.cat([g.ravel() for g in torch.autograd.grad(objective, model.parameters())])

    truth = gradient(model.step(X, Y).objective)
    selector = DistributedSelector(
        make_selector("importance", parts.train.Y, batch_size=10, seed=4)
    )
    estimates = []
    for _ in range(150):
        for index in selector:
            weights = torch.from_numpy(selector.unequal_weights())
            estimates.append(gradient(model.step(X[index], Y[index], weights).objective))
            selector.observe(torch.zeros(len(index)))
        # The last batch may be short, and is then a batch like the others.
    assert len(estimates) == 150 * -(-n // 10)
    estimates = torch.stack(estimates)
    z = (estimates.mean(0) - truth) / (estimates.std(0) / len(estimates) ** 0.5).clamp(min=1e-12)
    assert z.abs().max() < 5.5


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("importance", {}),
        ("importance", {"score": "gradient"}),
        ("balanced", {"corrected": True}),
        ("minority", {"corrected": True}),
    ],
)
def test_training_with_correction_measures_what_it_gains(parts, strategy, options):
    selector = make_selector(
        strategy, parts.train.Y, batch_size=16, warm_up_epochs=0, epochs=3, **options
    )
    plan = TrainingPlan(epochs=3, batch_size=16, lr=0.01, warm_up_epochs=0)
    model = make_model("mlp", parts.train, seed=0, loss="weighted_bce")
    training = Trainer(plan).fit(model, parts, selector)
    assert len(training.epochs) == 3
    assert selector.diagnostics().gain > 0
    assert selector.diagnostics().verdict


def test_the_estimator_trains_with_importance(parts):
    X, Y = parts.train.X, parts.train.Y
    settings = {"epochs": 3, "warm_up_epochs": 0, "batch_size": 16, "random_state": 0}
    weighted = TailbatchClassifier(strategy="importance", strategy__mix=0.2, **settings).fit(X, Y)
    plain = TailbatchClassifier(strategy="random", **settings).fit(X, Y)
    assert not np.allclose(weighted.predict_proba(X), plain.predict_proba(X))
    uniform = TailbatchClassifier(strategy="importance", strategy__mix=1.0, **settings).fit(X, Y)
    assert uniform.predict_proba(X).shape == Y.shape


def test_a_loss_that_compares_samples_is_refused_before_the_first_batch(parts):
    selector = make_selector("balanced", parts.train.Y, corrected=True)
    model = make_model("mlp", parts.train, loss="two_way")
    with pytest.raises(ModelError, match="two_way cannot be trained with corrected selection"):
        Trainer(TrainingPlan(epochs=1)).fit(model, parts, selector)
    assert not selector.times_drawn.any()
