import pytest
import torch

from models import naive
from models.fast_algebra import FastAlgebraContract, assert_same
from tailbatch.errors import ModelError
from tailbatch.models import C2AE
from tailbatch.models.c2ae import _orthogonality, _rank_loss
from tailbatch.testing.model_contract import ModelContract, batch


class TestC2AE(FastAlgebraContract, ModelContract):
    model_class = C2AE
    naive = staticmethod(naive.c2ae)
    least_auc = 0.85

    def test_more_latent_dimensions_than_rows_equal_the_formula(self):
        model = self.build(7, 9, latent=30).double()
        x, y = batch(5, 7, 9, dtype=torch.float64)
        assert_same(model, lambda: model.step(x, y).objective, lambda: naive.c2ae(model, x, y))

    def test_ranking_never_trains_the_feature_encoder(self):
        model = self.build(emb_weight=0.0)
        model.step(*batch(5, 7, 3)).objective.backward()
        assert all((p.grad == 0).all() for p in model.feature_encoder.parameters())
        assert any((p.grad != 0).any() for p in model.decoder.parameters())

    def test_latent_width_is_four_fifths_of_the_labels_but_at_least_two(self):
        assert self.build(7, 10).hyperparameters["latent"] == 8
        assert self.build(7, 1).hyperparameters["latent"] == 2

    def test_sum_reduction_is_the_mean_times_the_batch(self):
        x, y = batch(5, 7, 3)
        mean = self.build().step(x, y).objective
        total = self.build(reduction="sum").step(x, y).objective
        assert torch.allclose(total, 5 * mean)

    def test_sample_objective_is_distance_plus_weighted_rank(self):
        model, (x, y) = self.build(), batch(5, 7, 3)
        a = model.feature_encoder(x).sigmoid() - 0.5
        e = model.label_encoder(y).sigmoid() - 0.5
        rank = naive.pairwise_rank(model.decoder(e).sigmoid(), y)
        expected = (a - e).square().sum(1) + 0.5 * rank
        assert torch.allclose(model.step(x, y).sample_objective, expected)

    def test_the_port_has_unbounded_codes_and_its_own_ranking_loss(self):
        model = self.build(7, 9, **C2AE.presets["port"]).double()
        x, y = batch(5, 7, 9, dtype=torch.float64)

        def formula():
            a, e = (
                torch.nn.functional.leaky_relu(encoder(values), 0.1)
                for encoder, values in ((model.feature_encoder, x), (model.label_encoder, y))
            )
            p = model.decoder(e).sigmoid()
            pairs = y[:, :, None] * (1 - y)[:, None, :]
            terms = (torch.exp(p[:, None, :] - p[:, :, None]) * pairs).sum((1, 2))
            rank = (terms / pairs.sum((1, 2)).clamp(min=1)).sum()
            ortho = naive.ortho(a) + naive.ortho(e)
            return (0.5 * ((a - e).square().sum() + 0.01 * ortho) + 10 * rank) / len(x)

        assert_same(model, lambda: model.step(x, y).objective, formula)

    def test_published_init_has_the_matlab_ranges(self):
        model = self.build(init="published")
        first, last = model.feature_encoder[0], model.feature_encoder[-1]
        assert first.weight.abs().max() <= 0.01
        assert 0 <= first.bias.min() <= first.bias.max() <= 0.1
        assert last.weight.abs().max() <= 4 * (6 / (512 + 2)) ** 0.5
        assert (last.bias == 0).all()

    def test_unknown_words_and_sizes_are_refused(self):
        with pytest.raises(ModelError, match="reduction must be one of mean, sum; got 'none'"):
            self.build(reduction="none")
        with pytest.raises(ModelError, match="code must be one of sigmoid, leaky; got 'tanh'"):
            self.build(code="tanh")
        with pytest.raises(ModelError, match="steepness must be above 0, got 0"):
            self.build(steepness=0)
        with pytest.raises(ModelError, match="hidden must be an integer from 1, got 0"):
            self.build(hidden=0)


def test_rank_loss_has_finite_gradients_without_pairs():
    p = torch.full((2, 3), 0.5, requires_grad=True)
    _rank_loss(p, torch.tensor([[0.0, 0, 0], [1, 1, 1]])).sum().backward()
    assert (p.grad == 0).all()


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_orthogonality_by_hand(shape):
    code = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.norm(code.T @ code - torch.eye(shape[1], dtype=torch.float64)) ** 2
    assert torch.allclose(_orthogonality(code), expected)
