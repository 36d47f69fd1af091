import math

import pytest
import torch

from models import naive
from models.fast_algebra import FastAlgebraContract
from tailbatch.models import MPVAE, make_model, seeded
from tailbatch.models.mpvae import _probit_losses
from tailbatch.testing.model_contract import ModelContract, batch


class TestMPVAE(FastAlgebraContract, ModelContract):
    model_class = MPVAE
    naive = staticmethod(naive.mpvae)

    def test_closed_form_marginals_agree_with_a_million_draws(self):
        model = self.build(n_labels=4, residual_rank=3).double().eval()
        x, _ = batch(2, 7, 4, dtype=torch.float64)
        n_draws = 10**6
        with seeded(0, "draws"), torch.no_grad():
            latent = model.feature_head(model.feature_encoder(x))[0]
            mean = model.feature_output(model.decoder(torch.cat([x, latent], 1)))
            total, squares = torch.zeros_like(mean), torch.zeros_like(mean)
            for _ in range(10):
                draws = torch.randn(n_draws // 10, 1, 3, dtype=torch.float64)
                p = torch.special.ndtr(draws @ model.residual.T + mean)
                total += p.sum(0)
                squares += p.square().sum(0)
        estimate = total / n_draws
        error = ((squares / n_draws - estimate.square()) / n_draws).sqrt()
        assert ((model.predict_proba(x) - estimate).abs() <= 3 * error).all()

    def test_sampled_prediction_is_repeatable_and_near_the_exact_one(self):
        x, _ = batch(5, 7, 3)
        exact, sampled = self.build(), self.build(sample_latent=True, prediction_samples=2000)
        before = torch.get_rng_state()
        first, second = sampled.predict_proba(x), sampled.predict_proba(x)
        assert torch.equal(first, second)
        assert torch.equal(torch.get_rng_state(), before)
        # The latent code is sampled too, so only rough agreement can be asked for.
        assert (first - exact.predict_proba(x)).abs().mean() < 0.15

    def test_sampled_prediction_at_a_sharp_code_is_the_exact_marginal(self):
        x, _ = batch(5, 7, 3)
        model = self.build(sample_latent=True, prediction_samples=4000)
        with torch.no_grad():
            model.feature_head.logvar.bias.fill_(-1e3)
        exact = self.build()
        exact.load_state_dict(model.state_dict())
        assert (model.predict_proba(x) - exact.predict_proba(x)).abs().max() < 0.04

    def test_sample_objective_averages_to_the_objective(self):
        step = self.build().step(*batch(5, 7, 3))
        assert torch.allclose(step.sample_objective.mean(), step.objective)

    def test_many_labels_take_fewer_draws(self):
        assert self.build(7, 200).hyperparameters["samples"] == 100
        assert self.build(7, 201).hyperparameters["samples"] == 20

    def test_the_residual_covariance_is_never_decayed(self):
        model = self.build()
        groups = model.param_groups(lr=0.01, weight_decay=0.1)
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
        assert groups[1]["params"][0] is model.residual

    def test_the_learning_rate_is_the_plans(self):
        groups = self.build().param_groups(lr=1e-3, weight_decay=0.1)
        assert [group["lr"] for group in groups] == [1e-3, 1e-3]

    def test_a_penalty_in_the_objective_replaces_decay(self):
        x, y = batch(5, 7, 3)
        plain, penalized = self.build(), self.build(weight_penalty=2.0)
        with seeded(0, "step"):
            without = plain.step(x, y).objective
        with seeded(0, "step"):
            within = penalized.step(x, y).objective
        weights = [
            value.square().sum()
            for name, value in plain.named_parameters()
            if name.endswith("weight")
        ]
        assert torch.allclose(within - without, torch.stack(weights).sum(), rtol=1e-4)
        decays = [group["weight_decay"] for group in penalized.param_groups(0.01, 0.1)]
        assert decays == [0.0, 0.0]

    @pytest.mark.parametrize("preset", sorted(MPVAE.presets))
    def test_presets_build(self, preset, toy):
        model = make_model("mpvae", toy, preset=preset)
        assert MPVAE.presets[preset].items() <= model.hyperparameters.items()


def test_stable_form_agrees_in_the_normal_range_and_keeps_the_gradient_beyond():
    with seeded(0, "probit"):
        mean = torch.randn(4, 5, dtype=torch.float64)
        shift = torch.randn(4, 6, 5, dtype=torch.float64)
    y = (mean > 0).double()
    published, stable = (_probit_losses(mean, shift, y, stable=flag) for flag in (False, True))
    assert torch.allclose(published, stable, rtol=1e-4)
    wrong = torch.full((1, 1), -9.0, requires_grad=True)
    _probit_losses(wrong, torch.zeros(1, 1, 1), torch.ones(1, 1), stable=True)[0, 0].backward()
    assert wrong.grad < -8


def test_ranking_loss_of_a_perfect_row_by_hand():
    # Scores far out: the relevant label has P = 1, the irrelevant one too: exp(-5) / 5.
    mean = torch.tensor([[20.0, -20.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    ((nll, rank),) = _probit_losses(mean, torch.zeros(1, 3, 2, dtype=torch.float64), y)
    assert rank.item() == pytest.approx(math.exp(-5) / 5, rel=1e-4)
    assert nll.item() == pytest.approx(0, abs=1e-5)
