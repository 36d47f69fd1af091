import pytest
import torch
import torch.nn.functional as F

from tailbatch.errors import ModelError
from tailbatch.imbalance import positive_weights
from tailbatch.losses import LOSSES, make_loss
from tailbatch.models import MLP, make_model, seeded
from tailbatch.models.blocks import mlp_block
from tailbatch.testing.model_contract import ModelContract, batch


class TestMLP(ModelContract):
    model_class = MLP

    @pytest.mark.parametrize("name", sorted(LOSSES))
    def test_objective_is_the_sum_over_labels_and_mean_over_samples(self, name, toy):
        model = make_model("mlp", toy, loss=name, dropout=0)
        x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
        expected = make_loss(name, toy.Y)(model(x), y)
        step = model.step(x, y)
        assert torch.allclose(step.objective, expected)
        assert torch.allclose(step.objective, step.sample_objective.mean())
        assert list(step.terms) == [name]

    def test_without_hidden_layers_it_is_linear(self):
        model, (x, _) = self.build(hidden=[]), batch(5, 7, 3)
        assert torch.equal(model(x), model.classifier(x))

    def test_bad_hyperparameters_are_refused(self, toy):
        with pytest.raises(ModelError, match=r"hidden\[1\] must be an integer from 1, got 0"):
            self.build(hidden=[8, 0])
        with pytest.raises(ModelError, match=r"dropout must be in \[0, 1\), got 1"):
            self.build(dropout=1.0)
        with pytest.raises(ModelError, match="reduction must be one of sum, mean; got 'total'"):
            self.build(reduction="total")
        with pytest.raises(
            ModelError, match=r"no hyperparameter 'objective': .* loss='weighted_bce'"
        ):
            make_model("mlp", toy, objective="weighted_bce")


def old_mlp_steps(train, *, steps, weights=None):
    """Train as version 0.1 did: no prior bias, binary cross-entropy averaged over labels and samples."""
    with seeded(0, "model"):
        body = mlp_block([train.n_features, 16], dropout=0.2)
        classifier = torch.nn.Linear(16, train.n_labels)
    x, y = torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float()
    network = torch.nn.Sequential(body, classifier)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-4)
    for step in range(steps):
        with seeded(0, "step", step):
            cells = F.binary_cross_entropy_with_logits(
                network(x), y, reduction="none", pos_weight=weights
            )
            optimizer.zero_grad()
            cells.mean(1).mean().backward()
            optimizer.step()
    return [tensor.clone() for tensor in network.state_dict().values()]


@pytest.mark.parametrize("loss", [None, "weighted_bce"])
def test_the_old_training_stays_reachable(toy, loss):
    weights = None if loss is None else torch.from_numpy(positive_weights(toy.Y)).float()
    expected = old_mlp_steps(toy, steps=5, weights=weights)
    model = make_model("mlp", toy, hidden=[16], reduction="mean", prior_bias=False, loss=loss)
    x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
    optimizer = torch.optim.Adam(model.param_groups(lr=1e-2, weight_decay=1e-4))
    for step in range(5):
        with seeded(0, "step", step):
            optimizer.zero_grad()
            model.step(x, y).objective.backward()
            optimizer.step()
    state = {name: value for name, value in model.state_dict().items() if "loss" not in name}
    # Up to rounding: the first layer lies transposed in memory, for sparse rows.
    for tensor, former in zip(state.values(), expected, strict=True):
        assert torch.allclose(tensor, former, rtol=1e-4, atol=1e-6)
