import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from models import naive
from models.fast_algebra import FastAlgebraContract, assert_same
from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.models import PACA, flows, make_model, seeded
from tailbatch.models.flows import LabelFlow
from tailbatch.testing.model_contract import ModelContract, batch


class TestPACA(FastAlgebraContract, ModelContract):
    model_class = PACA
    naive = staticmethod(naive.paca)

    @pytest.mark.parametrize("latent", [1, 2, 300])
    @pytest.mark.parametrize("legacy_ratio", [False, True])
    def test_narrow_and_wide_latent_spaces_equal_the_formula(self, latent, legacy_ratio):
        model = self.build(7, 3, latent=latent, legacy_ratio=legacy_ratio).double()
        x, y = batch(5, 7, 3, dtype=torch.float64)
        assert_same(model, lambda: model.step(x, y).objective, lambda: naive.paca(model, x, y))
        model.float().step(*batch(5, 7, 3)).objective.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())

    def test_latent_width_is_half_the_features_but_at_most_64(self):
        assert self.build(7).hyperparameters["latent"] == 4
        assert self.build(300).hyperparameters["latent"] == 64
        assert self.build(300, latent="half").hyperparameters["latent"] == 150
        with pytest.raises(ModelError, match="latent must be one of half; got 'all'"):
            self.build(latent="all")

    @pytest.mark.parametrize("storage", [np.asarray, csr_array])
    @pytest.mark.parametrize(("value", "binary"), [(1.0, True), (0.5, False)])
    def test_binary_features_are_noticed(self, storage, value, binary):
        X, Y = storage(np.eye(4) * value), np.eye(4, 2, dtype=bool)
        train = MultiLabelDataset.from_arrays(X, Y)
        assert make_model("paca", train).hyperparameters["binary_features"] is binary
        assert make_model("paca", train, binary_features=False).binary_features is False
        assert make_model("paca", train, preset="reference").binary_features is False

    def test_binary_reconstruction_equals_the_formula(self):
        model = self.build(binary_features=True).double()
        x, y = batch(5, 7, 3, dtype=torch.float64)
        x = x.round()
        assert_same(model, lambda: model.step(x, y).objective, lambda: naive.paca(model, x, y))

    def test_sample_objective_averages_to_the_objective(self):
        step = self.build().step(*batch(5, 7, 3))
        assert torch.allclose(step.sample_objective.mean(), step.objective)


def flow(n_labels, latent, **options):
    with seeded(0, "flow"):
        return LabelFlow(n_labels, latent, **options).double()


@pytest.mark.parametrize("legacy_ratio", [False, True])
@pytest.mark.parametrize("label", [0, 2])
def test_flow_is_a_bijection_whose_log_determinant_is_the_reported_one(label, legacy_ratio):
    latent = 300 if legacy_ratio else 5
    prototype = flow(3, latent, legacy_ratio=legacy_ratio)
    with seeded(0, "z"):
        z = torch.randn(latent, dtype=torch.float64)

    def transform(point):
        warped, _ = prototype.sigmoidal.warp()(point[None])
        warped = warped[:, 0, min(label, warped.shape[2] - 1)]
        scale = torch.nn.functional.softplus(prototype.scale()[label])
        return scale * warped + prototype.shift()[label]

    jacobian = torch.autograd.functional.jacobian(transform, z)
    assert torch.equal(jacobian, jacobian.tril())
    assert (jacobian.diagonal() > 0).all()
    moved = transform(z)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(moved).sum()
    expected = normal + jacobian.diagonal().log().sum()
    assert torch.allclose(prototype(z[None])[0, label], expected, rtol=1e-9)


def test_affine_map_starts_as_the_identity():
    prototype = flow(3, 5)
    assert torch.allclose(
        torch.nn.functional.softplus(prototype.scale()), torch.ones(1).double(), atol=0.01
    )
    assert prototype.shift().abs().max() < 0.01


@pytest.mark.parametrize("latent", [5, 64])
def test_chunks_change_nothing(monkeypatch, latent):
    prototype, z = flow(3, latent), torch.rand(4, latent, dtype=torch.float64)
    results = []
    for size in (7, 10**6):
        monkeypatch.setattr(flows, "_CHUNK_VALUES", size)
        density = prototype(z)
        gradients = torch.autograd.grad(density.square().sum(), list(prototype.parameters()))
        results.append([density.detach(), *gradients])
    for left, right in zip(*results, strict=True):
        assert torch.allclose(left, right, rtol=1e-10, atol=1e-12)


def test_gradients_of_the_warp_are_those_of_finite_differences():
    with seeded(0, "warp"):
        # Blocks of 2 and 1 dimensions that see 3 and 4 hidden units; 2 parameters and 2 units, 5 columns.
        shapes = (3, 5), (5, 4), (6, 2), (6,), (4, 3), (4,), (2, 4), (2,)
        tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(flows._warp, tensors)


@pytest.mark.parametrize("latent", [1, 5, 64, 300])
def test_a_flow_is_its_formula_written_out(latent):
    prototype = flow(3, latent)
    with seeded(0, "z"):
        z = torch.randn(6, latent, dtype=torch.float64, requires_grad=True)

    def gradients(density):
        return torch.autograd.grad(density.square().sum(), [z, *prototype.parameters()])

    fast, written = prototype(z), naive.log_density(prototype, z)
    assert torch.allclose(fast, written, rtol=1e-10)
    for left, right in zip(gradients(fast), gradients(written), strict=True):
        assert torch.allclose(left, right, rtol=1e-8, atol=1e-10)
    single = prototype.float()(z.float()).double()
    assert torch.allclose(single, written, rtol=1e-5, atol=1e-4)


def test_far_away_points_have_finite_densities_and_gradients():
    with seeded(0, "flow"):
        prototype = LabelFlow(3, 5)
    z = torch.tensor([[1e3, -1e3, 1e2, 0.0, -50.0]], requires_grad=True)
    density = prototype(z)
    density.sum().backward()
    assert density.isfinite().all()
    assert z.grad.isfinite().all()
