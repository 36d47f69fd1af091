import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.losses import Focal, WeightedBCE
from tailbatch.models import (
    DELA,
    MODELS,
    MultiLabelModel,
    make_model,
    restore_model,
    seeded,
    wrap,
)
from tailbatch.testing.model_contract import batch


def test_the_five_models_the_default_and_the_baseline_are_there():
    assert list(MODELS) == ["mlp", "ensemble", "c2ae", "mpvae", "paca", "clif", "dela"]
    assert all(MODELS[name].name == name for name in MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_sparse_features_and_labels_build_the_same_model(name, toy):
    sparse = MultiLabelDataset.from_arrays(csr_array(toy.X), csr_array(toy.Y))
    dense, other = make_model(name, toy), make_model(name, sparse)
    for left, right in zip(dense.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(left, right)


def test_unknown_names_suggest_the_nearest(toy):
    with pytest.raises(ModelError, match=r"unknown model 'dala'; did you mean 'dela'\? Known: mlp"):
        make_model("dala", toy)
    with pytest.raises(ModelError, match=r"unknown model 'resnet50'\. Known"):
        make_model("resnet50", toy)
    with pytest.raises(
        ModelError, match="clif has no hyperparameter 'hiden'; did you mean 'hidden'"
    ):
        make_model("clif", toy, hiden=8)
    with pytest.raises(
        ModelError, match="clif has no preset 'referense'; did you mean 'reference'"
    ):
        make_model("clif", toy, preset="referense")


def test_hyperparameters_win_over_the_preset(toy):
    model = make_model("clif", toy, preset="reference", hidden=16)
    assert model.hyperparameters["hidden"] == 16
    assert model.hyperparameters["gate"] == "linear"


def test_a_class_is_as_good_as_its_name(toy):
    by_name, by_class = make_model("dela", toy), make_model(DELA, toy)
    assert torch.equal(by_name.gate_table, by_class.gate_table)


def linear(n_features, n_labels, *, bias=True):
    return torch.nn.Linear(n_features, n_labels, bias=bias)


def test_a_factory_of_modules_is_wrapped(toy):
    before = torch.get_rng_state()
    model, again = make_model(linear, toy, bias=False), make_model(linear, toy, bias=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(model, MultiLabelModel)
    assert model.module.bias is None
    assert torch.equal(model.module.weight, again.module.weight)
    restored = restore_model(linear, 20, 5, {"bias": False}, model.state_dict())
    assert torch.equal(restored.module.weight, model.module.weight)
    with pytest.raises(ModelError, match="preset 'reference' is for named models"):
        make_model(linear, toy, preset="reference")


def test_a_wrapped_module_is_trained_with_cross_entropy():
    (x, y), linear = batch(5, 7, 3), torch.nn.Linear(7, 3)
    mean = torch.nn.functional.binary_cross_entropy_with_logits(linear(x), y)
    for model, expected in ((wrap(linear), 3 * mean), (wrap(linear, reduction="mean"), mean)):
        step = model.step(x, y)
        assert torch.allclose(step.objective, expected)
        assert torch.allclose(step.sample_objective.mean(), expected)
        assert torch.allclose(model.predict_proba(x), linear(x).sigmoid())
        assert wrap(model) is model


def test_a_wrapped_module_takes_any_loss():
    linear, (x, y) = torch.nn.Linear(7, 3), batch(5, 7, 3)
    bce = torch.nn.functional.binary_cross_entropy_with_logits(linear(x), y, reduction="none")
    expected = (bce * (1 + y * torch.tensor([0.0, 1.0, 4.0]))).sum(1).mean()
    weighted = WeightedBCE(3, weights=[1.0, 2.0, 5.0])
    assert torch.allclose(wrap(linear, loss=weighted).step(x, y).objective, expected)
    by_table = wrap(
        linear, loss={"name": "weighted_bce", "weights": [1, 2, 5]}, Y=y, prior_bias=False
    )
    assert torch.allclose(by_table.step(x, y).objective, expected)
    # The weights belong to the state: without them scores could not be set right again.
    assert "loss.positive_weight" in by_table.state_dict()


def test_a_loss_that_fits_nothing_is_refused():
    linear, (x, y) = torch.nn.Linear(7, 3), batch(5, 7, 3)
    with pytest.raises(ModelError, match=r"'focal' is made from the labels .*: give Y, or a ready"):
        wrap(linear, loss="focal")
    with pytest.raises(
        ModelError, match=r"takes logits and labels of shape \(b, 2\), got \(5, 3\)"
    ):
        wrap(linear, loss=WeightedBCE(2)).step(x, y)
    with pytest.raises(ModelError, match="weighted_bce was made for 2 labels, and Y has 3"):
        wrap(linear, loss=WeightedBCE(2), Y=y)


REFUSALS = {"c2ae": "it ranks pairs of labels", "mpvae": "it maximizes the joint likelihood"}


@pytest.mark.parametrize("name", MODELS)
def test_a_loss_takes_the_place_of_cross_entropy_or_is_refused_with_the_reason(name, toy):
    if name in REFUSALS:
        with pytest.raises(ModelError, match=f"{name} takes no loss, 'focal'.*: {REFUSALS[name]}"):
            make_model(name, toy, loss="focal")
        return
    x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
    plain, other = make_model(name, toy).eval(), make_model(name, toy, loss="focal").eval()
    step = other.step(x, y)
    assert "focal" in step.terms
    assert step.objective.isfinite()
    if name != "mlp":  # whose biases may start elsewhere
        assert plain.step(x, y).objective > step.objective
    state, table = other.state_dict(), {"name": "focal", **other.loss.options}
    again = restore_model(name, 20, 5, other.hyperparameters, state, table)
    assert isinstance(again.loss, Focal)


def test_a_model_of_ones_own_may_take_a_loss_or_not(toy):
    class Own(MultiLabelModel):
        name = "own"

        def __init__(self, n_features, n_labels):
            super().__init__(n_features, n_labels)
            self.linear = torch.nn.Linear(n_features, n_labels)

        def forward(self, x):
            return self.linear(x)

        def step(self, x, y):
            raise NotImplementedError

    assert make_model(Own, toy).loss is None
    with pytest.raises(ModelError, match="own takes no loss, 'bce' or other: its objective is its"):
        make_model(Own, toy, loss="bce")
    with pytest.raises(ModelError, match="own takes no loss"):
        make_model(lambda d, q: Own(d, q), toy, loss="bce")


def test_a_wrapped_module_of_the_wrong_width_is_refused():
    with pytest.raises(ModelError, match=r"logits and labels of shape .*got \(5, 4\) and \(5, 3\)"):
        wrap(torch.nn.Linear(7, 4)).step(*batch(5, 7, 3))


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("mlp", {"hidden": [10**12]}),
        ("mlp", {"hidden": [10**30]}),
        ("mlp", {"hidden": "wide"}),
        ("mlp", {"dropout": "much"}),
        ("clif", {"in_layers": 10**9}),
        ("paca", {"latent": 10**12}),
        ("mpvae", {"residual_rank": 10**12}),
    ],
)
def test_forged_hyperparameters_are_refused_without_allocating(name, claims):
    state = MODELS[name](4, 3).state_dict()
    with pytest.raises(ModelError):
        restore_model(name, 4, 3, claims, state)


def test_unknown_stored_hyperparameters_are_refused():
    with pytest.raises(ModelError, match="mlp has no hyperparameter 'code'"):
        restore_model("mlp", 4, 3, {"code": "import os"}, {})


def test_seeded_blocks_repeat_and_restore():
    before = torch.get_rng_state()
    with seeded(0, "step", 1, 2):
        first = torch.rand(3)
    with seeded(0, "step", 1, 2):
        second = torch.rand(3)
    with seeded(0, "step", 1, 3):
        third = torch.rand(3)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_restores_after_an_error():
    @seeded(0, "step")
    def draw_and_fail():
        torch.rand(3)
        raise RuntimeError("stop")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="stop"):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", MODELS)
def test_labels_absent_from_train_are_accepted(name):
    Y = np.zeros((6, 3), dtype=bool)
    Y[:, 1] = True
    train = MultiLabelDataset.from_arrays(np.full((6, 2), 0.5), Y)
    model = make_model(name, train)
    x, y = torch.full((6, 2), 0.5), torch.from_numpy(Y).float()
    assert model.step(x, y).objective.isfinite()
    assert model.predict_proba(x).isfinite().all()


@pytest.mark.parametrize("name", ["mlp", "ensemble", "clif", "dela", "paca"])
def test_a_loss_that_compares_samples_refuses_their_weights_in_every_model(name, toy):
    model, (x, y) = make_model(name, toy, loss="two_way"), batch(8, 20, 5)
    assert model.step(x, y).objective.isfinite()
    with pytest.raises(ModelError, match="two_way cannot be trained with corrected selection"):
        model.step(x, y, torch.ones(len(y)) / len(y))


def test_a_wrapped_module_and_c2ae_refuse_weights_in_the_same_words(toy):
    x, y = batch(8, 20, 5)
    wrapped = wrap(torch.nn.Linear(x.shape[1], y.shape[1]), loss="two_way", Y=toy.Y)
    for model in (wrapped, make_model("c2ae", toy)):
        with pytest.raises(ModelError, match="no weight of a sample can correct; draw with cover"):
            model.step(x, y, torch.ones(len(y)) / len(y))
