"""What the sum over labels is for: decay that does not grow with the number of labels."""

import numpy as np
import pytest
import torch

from tailbatch.data import MultiLabelDataset
from tailbatch.losses import LOSSES
from tailbatch.models import make_model

COPIES = 8


def rows(copies):
    """Data whose labels stand there several times over."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 6))
    Y = X[:, :3] + rng.normal(0, 0.3, (60, 3)) > np.array([0.5, 0.8, 1.0])
    return MultiLabelDataset.from_arrays(X, np.tile(Y, copies))


def linear(copies, **options):
    model = make_model("mlp", rows(copies), hidden=[], **options)
    weight = torch.linspace(-1, 1, 18).reshape(3, 6).tile(copies, 1)
    # In the shape of nn.Linear, (out, in), which a layer for sparse rows has in its state only.
    model.load_state_dict({**model.state_dict(), "classifier.weight": weight})
    return model


def trained(model, train, optimizer):
    x, y = torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float()
    for _ in range(50):
        optimizer.zero_grad()
        model.step(x, y).objective.backward()
        optimizer.step()
    end = model.state_dict()
    return end["classifier.weight"][:3].clone(), end["classifier.bias"][:3].clone()


@pytest.mark.parametrize("loss", [None, "weighted_bce"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_with_decoupled_decay_copies_of_the_labels_change_nothing(loss, kind):
    ends = []
    for copies in (1, COPIES):
        model = linear(copies, loss=loss)
        # SGD: the decay is part of the step, and so is the gradient, which is no longer divided by q.
        optimizer = kind(model.param_groups(lr=0.05, weight_decay=0.1))
        ends.append(trained(model, rows(copies), optimizer))
    for alone, among in zip(*ends, strict=True):
        assert torch.allclose(alone, among, rtol=1e-4, atol=1e-6)


def test_with_coupled_decay_copies_change_nothing_for_a_sum_and_much_for_a_mean():
    ends = {}
    for reduction in ("sum", "mean"):
        for copies in (1, COPIES):
            model = linear(copies, reduction=reduction)
            optimizer = torch.optim.Adam(model.param_groups(lr=0.05, weight_decay=0.1))
            ends[reduction, copies] = trained(model, rows(copies), optimizer)[0]
    assert torch.allclose(ends["sum", 1], ends["sum", COPIES], rtol=1e-3, atol=1e-5)
    assert ends["mean", COPIES].norm() < 0.5 * ends["mean", 1].norm()


def test_the_ratio_of_decay_to_gradient_of_an_output_row_stays_what_it_was():
    def ratio(reduction, copies):
        train, model = rows(copies), linear(copies, reduction=reduction)
        x, y = torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float()
        model.step(x, y).objective.backward()
        weight = model.classifier.weight  # (in, out)
        return (1e-4 * weight.norm(dim=0) / weight.grad.norm(dim=0))[:3].detach()

    assert torch.allclose(ratio("sum", COPIES), ratio("sum", 1), rtol=1e-4)
    assert torch.allclose(ratio("mean", COPIES), COPIES * ratio("mean", 1), rtol=1e-4)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"two_way", "distribution_balanced"}))
def test_the_gradient_of_a_label_does_not_depend_on_how_many_others_there_are(name):
    gradients = []
    for copies in (1, COPIES):
        train, model = rows(copies), linear(copies, loss=name, prior_bias=False)
        with torch.no_grad():
            model.classifier.bias.zero_()
        x, y = torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float()
        model.step(x, y).objective.backward()
        gradients.append(model.classifier.weight.grad[:, :3])  # (in, out)
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)
