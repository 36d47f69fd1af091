"""Output biases that start at the labels' frequencies."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.losses import BCE, WeightedBCE, weighted_bce
from tailbatch.models import make_model, set_prior_bias, wrap

# One positive of four, none, all.
Y = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]], dtype=bool)
SHARES = np.array([1 / 4, 1 / 8, 7 / 8])  # half a count where there is none


@pytest.mark.parametrize("labels", [Y, Y.astype(int), csr_array(Y), torch.from_numpy(Y).float()])
@pytest.mark.parametrize("weights", [None, [2.0, 1.0, 0.5]])
def test_the_bias_is_the_weighted_log_odds(labels, weights):
    layer = nn.Linear(5, 3)
    set_prior_bias(layer, labels, weights)
    odds = SHARES / (1 - SHARES) * (1 if weights is None else np.array(weights))
    assert layer.bias.exp().detach().numpy() == pytest.approx(odds, rel=1e-5)
    assert layer.bias.requires_grad


@pytest.mark.parametrize("loss", [weighted_bce(Y), WeightedBCE(3, weights=[2, 1, 3]), BCE(None)])
def test_a_loss_stands_for_its_positive_weights(loss):
    layer, other = nn.Linear(5, 3), nn.Linear(5, 3)
    set_prior_bias(layer, Y, loss)
    set_prior_bias(other, Y, np.broadcast_to(loss.positive_weights, 3))
    assert torch.equal(layer.bias, other.bias)


def test_a_label_without_positives_is_told_of(caplog):
    set_prior_bias(nn.Linear(5, 3), Y)
    (record,) = caplog.records
    assert "prior bias: 1 of 3 labels have no positive in the training" in record.getMessage()
    assert "as if they had half of one, among them column 1" in record.getMessage()
    set_prior_bias(nn.Linear(5, 1), Y[:, :1])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("loss", [None, "weighted_bce", BCE(None)])
def test_wrap_takes_labels_as_lists(loss):
    one, two = nn.Linear(5, 3), nn.Linear(5, 3)
    model = wrap(one, Y=Y.astype(int).tolist(), loss=loss)
    wrap(two, Y=Y, loss=loss)
    assert torch.equal(one.bias, two.bias)
    assert model.step(torch.rand(2, 5), torch.ones(2, 3)).objective.isfinite()


def test_there_the_gradient_of_the_biases_is_zero():
    train = MultiLabelDataset.from_arrays(np.zeros((40, 2)), np.arange(80).reshape(40, 2) % 7 == 0)
    for loss in (None, "weighted_bce", "class_balanced"):
        model = make_model("mlp", train, loss=loss, hidden=[])
        x, y = torch.zeros(40, 2), torch.from_numpy(train.Y).float()
        model.step(x, y).objective.backward()
        assert model.classifier.bias.grad.abs().max() < 1e-6
        if loss:  # what was moved by the weights is where it was
            shares = model.loss.calibrated(model(x)).sigmoid()[0].detach().numpy()
            assert shares == pytest.approx(train.Y.mean(0), rel=1e-4)


@pytest.mark.parametrize("name", ["mlp", "ensemble"])
def test_a_loss_for_any_number_of_labels_has_a_prior_too(name, toy):
    made = make_model(name, toy, loss=BCE(None)).state_dict()
    usual = make_model(name, toy).state_dict()
    assert all(torch.equal(made[key], usual[key]) for key in usual)


def test_a_model_may_start_elsewhere(toy):
    plain = make_model("mlp", toy, prior_bias=False)
    assert not torch.equal(plain.classifier.bias, make_model("mlp", toy).classifier.bias)
    assert torch.equal(plain.classifier.weight, make_model("mlp", toy).classifier.weight)


class Headed(nn.Module):
    def __init__(self, n_features, n_labels):
        super().__init__()
        self.head = nn.Linear(n_features, n_labels)
        self.other = nn.Linear(n_features, n_labels)

    def forward(self, x):
        return self.head(x)


def test_wrap_finds_the_last_linear_layer_or_is_told():
    def biases(**options):
        module = Headed(5, 3)
        wrap(module, **options)
        expected = torch.from_numpy(np.log(SHARES / (1 - SHARES))).float()
        return [torch.allclose(layer.bias, expected) for layer in (module.head, module.other)]

    assert biases() == [False, False]
    assert biases(Y=Y) == [False, True]
    assert biases(Y=Y, output_layer="head") == [True, False]
    assert biases(Y=Y, prior_bias=False) == [False, False]
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model = wrap(module, Y=Y, loss=weighted_bce, output_layer=module[2])
    expected = np.log(SHARES / (1 - SHARES) * model.loss.positive_weights)
    assert module[2].bias.detach().numpy() == pytest.approx(expected, rel=1e-4)


def test_a_factory_is_wrapped_with_the_prior(toy):
    model = make_model(nn.Linear, toy)
    shares = toy.Y.mean(0)
    assert model.module.bias.sigmoid().detach().numpy() == pytest.approx(shares, rel=1e-4)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: set_prior_bias(nn.Linear(5, 2), Y),
            r"3 labels; Linear has a bias of shape \(2,\)",
        ),
        (lambda: set_prior_bias(nn.Linear(5, 3, bias=False), Y), "Linear has none"),
        (
            lambda: set_prior_bias(nn.Linear(5, 3), Y, "weighted_bce"),
            "a loss made for .* got 'weig",
        ),
        (lambda: set_prior_bias(nn.Linear(5, 3), Y, WeightedBCE(2)), "of 3 labels, got WeightedB"),
        (lambda: set_prior_bias(nn.Linear(5, 3), Y, [1.0, 2.0]), "for each of 3 labels, got "),
        (lambda: set_prior_bias(nn.Linear(5, 3), Y, [1.0, 2.0, 0.0]), "finite number above 0"),
        (lambda: wrap(nn.Linear(5, 3), prior_bias=True), "prior_bias needs the labels .*: give Y"),
        (
            lambda: wrap(nn.Linear(5, 3, bias=False), Y=Y, prior_bias=True),
            "Linear has no linear layer with a bias for each of 3 labels; name the layer",
        ),
        (
            lambda: wrap(Headed(5, 3), Y=Y, output_layer="hed"),
            "no layer 'hed'; it has: head, other",
        ),
    ],
)
def test_misuse_says_what_to_change(act, message):
    with pytest.raises(ModelError, match=message):
        act()


def test_without_a_linear_layer_nothing_is_set_unless_asked():
    model = wrap(nn.Conv1d(5, 3, 1), Y=Y)
    assert model.loss.n_labels == 3
    assert wrap(nn.Identity(), Y=Y, loss=WeightedBCE(3)).loss.name == "weighted_bce"
