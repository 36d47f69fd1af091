"""What every model and loss guarantees; a test class inherits these tests and names the class."""

import copy
import inspect
import io
import json

import joblib
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.losses import make_loss
from tailbatch.models import make_model, restore_model, seeded

# The last label has no positive.
LABELS = np.arange(60)[:, None] < np.array([36, 20, 8, 2, 0])
SHAPES = [(7, 3), (20, 9), (5, 1), (1, 2)]


def batch(n_rows, n_features, n_labels, *, dtype=torch.float32):
    """Features in [0, 1] with a row of zeros, labels with an empty and a full row."""
    with seeded(3, "batch"):
        x = torch.rand(n_rows, n_features, dtype=dtype)
        y = (torch.rand(n_rows, n_labels) < 0.4).to(dtype)
    x[-1] = 0
    y[0] = 0
    y[-1] = 1
    return x, y


def toy_dataset(n_rows=400, n_features=20, n_labels=5):
    """Uniform features, labels by linear thresholds with 30 % positives each."""
    generator = np.random.default_rng(0)
    X = generator.random((n_rows, n_features))
    scores = (X - 0.5) @ generator.normal(size=(n_features, n_labels))
    Y = scores > np.quantile(scores, 0.7, axis=0)
    return MultiLabelDataset.from_arrays(X, Y)


def _scored_batch(seed, n_rows=8, n_labels=5):
    """Logits around 0, and labels with an empty and a full row."""
    with seeded(seed, "batch"):
        logits = 3 * torch.randn(n_rows, n_labels)
        y = (torch.rand(n_rows, n_labels) < 0.4).float()
    y[0], y[-1] = 0, 1
    return logits, y


class ModelContract:
    """Inherit and set `model_class`; `least_auc` must be reached within 60 epochs on toy data."""

    model_class = None
    least_auc = 0.97

    def build(self, n_features=7, n_labels=3, **hyperparameters):
        with seeded(0, "model"):
            return self.model_class(n_features, n_labels, **hyperparameters)

    @pytest.mark.parametrize(("n_features", "n_labels"), SHAPES)
    @pytest.mark.parametrize("n_rows", [1, 5])
    @pytest.mark.parametrize("preset", [None, "reference"])
    def test_objective_and_every_gradient_are_finite(self, n_features, n_labels, n_rows, preset):
        hyperparameters = self.model_class.presets[preset] if preset else {}
        model = self.build(n_features, n_labels, **hyperparameters)
        step = model.step(*batch(n_rows, n_features, n_labels))
        step.objective.backward()
        assert step.objective.isfinite()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        with torch.no_grad():
            assert model.eval().step(*batch(n_rows, n_features, n_labels)).objective.isfinite()

    def test_step_hands_over_detached_values_of_the_right_shape(self):
        step = self.build().step(*batch(5, 7, 3))
        assert step.objective.shape == ()
        assert step.objective.requires_grad
        assert step.logits.shape == (5, 3)
        assert step.sample_objective.shape == (5,)
        detached = [step.logits, step.sample_objective, *step.terms.values()]
        assert not any(value.requires_grad for value in detached)
        assert all(value.shape == () and value.isfinite() for value in step.terms.values())

    def test_probabilities_are_the_sigmoid_of_eval_mode_logits(self):
        model = self.build().eval()
        x, y = batch(5, 7, 3)
        expected = model.step(x, y).logits.sigmoid()
        assert torch.allclose(model.predict_proba(x), expected, atol=1e-6)
        assert torch.allclose(model.predict_proba(x), model(x).sigmoid(), atol=1e-6)

    def test_prediction_is_deterministic_and_leaves_everything_as_found(self):
        model, (x, _) = self.build(), batch(5, 7, 3)
        model.train()
        frozen = next(iter(model.children())).eval()
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        before = torch.get_rng_state()
        first, second = model.predict_proba(x), model.predict_proba(x)
        assert torch.equal(first, second)
        assert not first.requires_grad
        assert torch.equal(torch.get_rng_state(), before)
        assert model.training
        assert not frozen.training
        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name]), name

    def test_prediction_in_chunks_equals_prediction_at_once(self, monkeypatch):
        model, (x, _) = self.build(), batch(5, 7, 3)
        whole = model.predict_proba(x)
        monkeypatch.setattr("tailbatch.models.base._PREDICT_ROWS", 2)
        assert torch.allclose(model.predict_proba(x), whole, atol=1e-6)
        assert model.predict_proba(x[:0]).shape == (0, 3)

    def test_prediction_refuses_another_width(self):
        with pytest.raises(ModelError, match=r"x must have shape \(n, 7\).*got \(5, 6\)"):
            self.build().predict_proba(torch.zeros(5, 6))

    def test_hyperparameters_are_complete_and_survive_json(self):
        model = self.build()
        names = list(inspect.signature(self.model_class).parameters)[2:]
        assert list(model.hyperparameters) == names
        stored = json.loads(json.dumps(model.hyperparameters))
        again = self.build(**stored)
        assert json.loads(json.dumps(again.hyperparameters)) == stored

    @pytest.mark.parametrize("preset", [None, "reference"])
    def test_a_trained_model_is_restored_without_the_data(self, preset):
        train = toy_dataset(30)
        model = make_model(self.model_class, train, seed=1, preset=preset)
        x = torch.from_numpy(train.X).float()
        step = model.step(x, torch.from_numpy(train.Y).float())
        step.objective.backward()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        before = torch.get_rng_state()
        again = restore_model(
            self.model_class, 20, 5, json.loads(json.dumps(model.hyperparameters)), state
        )
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(again.predict_proba(x), model.predict_proba(x))
        assert all(parameter.requires_grad for parameter in again.parameters())

    def test_weights_of_another_shape_are_refused(self):
        state = self.build(8, 3).state_dict()
        with pytest.raises(ModelError, match="the stored model cannot be rebuilt"):
            restore_model(self.model_class, 7, 3, {}, state)

    def test_the_same_seed_gives_the_same_weights_and_host_state_is_untouched(self):
        train = toy_dataset(30)
        before = torch.get_rng_state()
        first, second, other = (make_model(self.model_class, train, seed=s) for s in (4, 4, 5))
        assert torch.equal(torch.get_rng_state(), before)
        pairs = list(zip(first.parameters(), second.parameters(), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)
        assert not all(
            torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)
        )

    def test_parameter_groups_hold_every_parameter_once(self):
        model = self.build()
        groups = model.param_groups(lr=0.01, weight_decay=0.1)
        held = [id(parameter) for group in groups for parameter in group["params"]]
        assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())
        assert all(group["weight_decay"] in (0.0, 0.1) for group in groups)

    def test_copies_predict_the_same(self):
        model, (x, y) = self.build(), batch(5, 7, 3)
        model.step(x, y).objective.backward()
        pickled = io.BytesIO()
        joblib.dump(model, pickled)  # as scikit-learn users do
        pickled.seek(0)
        for copied in (copy.deepcopy(model), joblib.load(pickled)):
            assert torch.equal(copied.predict_proba(x), model.predict_proba(x))

    def test_learns_a_linear_problem(self):
        train = toy_dataset()
        model = make_model(self.model_class, train, seed=0)
        x, y = torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float()
        optimizer = torch.optim.Adam(model.param_groups(lr=1e-3, weight_decay=0.0))
        model.train()
        best, epoch = 0.0, 0
        while best < self.least_auc and epoch < 60:
            for _ in range(10):
                with seeded(0, "epoch", epoch):
                    for index in torch.randperm(len(x)).split(128):
                        optimizer.zero_grad()
                        model.step(x[index], y[index]).objective.backward()
                        optimizer.step()
                epoch += 1
            best = max(best, roc_auc_score(train.Y, model.predict_proba(x), average="macro"))
        assert best >= self.least_auc


class LossContract:
    """Inherit and set `loss_class`; set `options` to test values other than the defaults."""

    loss_class = None
    options = {}  # noqa: RUF012 # a plain table that a subclass replaces

    def make(self, labels=LABELS):
        return make_loss(self.loss_class, labels, **self.options)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("size", [1e4, 100.0, 0.0])
    def test_values_and_gradients_are_finite_far_out(self, dtype, size):
        loss, (_, y) = self.make(), _scored_batch(1)
        for sign in (torch.ones_like(y), -torch.ones_like(y), 2 * y - 1, 1 - 2 * y):
            logits = (size * sign).to(dtype).requires_grad_()
            value = loss(logits, y)
            value.backward()
            assert value.isfinite()
            assert logits.grad.isfinite().all()
            assert logits.grad.dtype == dtype

    def test_gradients_are_those_of_the_formula(self):
        loss, (logits, y) = self.make().eval(), _scored_batch(2)
        logits = logits.double().requires_grad_()
        assert torch.autograd.gradcheck(lambda z: loss(z, y), (logits,))

    def test_the_value_is_the_sum_over_labels_averaged_or_weighted_over_samples(self):
        loss, (logits, y) = self.make().eval(), _scored_batch(0)
        cells = loss.cells(logits, y)
        assert cells.shape == y.shape
        assert torch.allclose(loss(logits, y), cells.sum(1).mean())
        if not loss.compares_samples:
            even = torch.full((len(y),), 1 / len(y))
            assert torch.allclose(loss(logits, y, even), cells.sum(1).mean(), rtol=1e-5)
            first = torch.eye(len(y))[0]
            assert torch.allclose(loss(logits, y, first.double()), cells[0].sum())
        assert torch.allclose(loss.rows(logits, y, "mean"), cells.mean(1))
        for kind in (torch.bool, torch.int64, torch.float64):
            assert torch.equal(loss(logits, y.to(kind)), loss(logits, y))

    def test_state_and_options_rebuild_it(self):
        loss, (logits, y) = self.make(), _scored_batch(0)
        loss(logits, y)
        again = self.loss_class(5, **json.loads(json.dumps(loss.options)))
        again.load_state_dict(loss.state_dict())
        assert torch.equal(again(logits, y), copy.deepcopy(loss)(logits, y))
        assert not list(loss.parameters())

    @pytest.mark.parametrize(
        "labels", [LABELS[:, :1], LABELS[:, 4:], np.ones((3, 1)), np.zeros((3, 2))]
    )
    def test_one_label_and_labels_without_positives_or_negatives(self, labels):
        loss, q = self.make(labels), labels.shape[1]
        for y in (torch.zeros(4, q), torch.ones(4, q), torch.eye(4, q)):
            logits = torch.zeros(4, q, requires_grad=True)
            loss(logits, y).backward()
            assert loss(logits, y).isfinite()
            assert logits.grad.isfinite().all()
        assert np.isfinite(loss.positive_weights).all()
        assert (loss.positive_weights > 0).all()

    def test_cell_weights_are_positive(self):
        loss, (_, y) = self.make(), _scored_batch(0)
        weights = loss.cell_weights(y)
        assert weights.shape == y.shape
        assert (weights > 0).all()

    def test_it_has_a_name_and_refuses_options_of_other_losses(self):
        assert self.loss_class.name.isidentifier()
        assert self.loss_class.name != "loss"
        with pytest.raises(ModelError, match="has no option 'no_such_option'"):
            make_loss(self.loss_class, LABELS, no_such_option=1)

    def test_a_network_takes_a_step_with_it(self):
        train = toy_dataset(30)
        model = make_model("mlp", train, loss=lambda labels: self.make(labels), hidden=[8])
        step = model.step(torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float())
        step.objective.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
