from dataclasses import replace

import pytest
import torch
from scipy import sparse

from tailbatch.errors import ModelError
from tailbatch.losses import make_loss
from tailbatch.models import Ensemble, make_model
from tailbatch.testing.model_contract import ModelContract, batch


class TestEnsemble(ModelContract):
    model_class = Ensemble

    def test_the_probability_is_the_mean_of_the_members(self):
        model, (x, _) = self.build().eval(), batch(5, 7, 3)
        hidden = torch.relu(model.body(x)).view(5, 4, 128)
        networks = [hidden[:, m] @ model.output[m] + model.bias[m] for m in range(4)]
        members = [*networks, model.skip(x)]
        expected = torch.stack(members).sigmoid().mean(0)
        assert torch.allclose(model(x).sigmoid(), expected, atol=1e-6)

    def test_the_objective_is_the_mean_of_the_members_losses(self, toy):
        model = make_model("ensemble", toy, loss="weighted_bce", dropout=0, input_dropout=0)
        x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
        loss = make_loss("weighted_bce", toy.Y)
        expected = torch.stack([loss(member, y) for member in model._logits(x)]).mean()
        assert torch.allclose(model.step(x, y).objective, expected)

    def test_measurements_are_left_out_more_often_than_words(self, toy):
        assert make_model("ensemble", toy).hyperparameters["input_dropout"] == 0.5
        assert make_model("ensemble", toy, input_dropout=0.1).input_dropout == 0.1
        words = replace(toy, X=sparse.csr_array(toy.X * (toy.X > 0.8)))
        assert make_model("ensemble", words).input_dropout == 0.2

    def test_members_share_no_gradient(self):
        model, (x, y) = self.build(dropout=0, input_dropout=0), batch(6, 7, 3)
        model.loss.rows(model._logits(x)[1], y).mean().backward()
        used = model.output.grad.abs().sum((1, 2)) > 0
        assert used.tolist() == [False, True, False, False]
        assert model.skip.weight.grad.abs().sum() == 0

    def test_biases_start_at_the_prior_and_are_not_decayed(self, toy):
        model = make_model("ensemble", toy)
        prior = torch.from_numpy(toy.Y).float().mean(0)
        assert torch.allclose(model.bias.sigmoid(), prior.expand(4, -1), atol=1e-6)
        assert torch.allclose(model.skip.bias.sigmoid(), prior, atol=1e-6)
        decayed, free = model.param_groups(lr=1.0, weight_decay=0.5)
        assert free["weight_decay"] == 0
        assert any(parameter is model.bias for parameter in free["params"])
        assert not any(parameter.ndim == 1 for parameter in decayed["params"])

    def test_extreme_logits_stay_finite(self):
        model, (x, y) = self.build(), batch(4, 7, 3)
        with torch.no_grad():
            model.bias.fill_(200.0)
            model.skip.bias.fill_(-200.0)
        step = model.step(x, y)
        assert step.logits.isfinite().all()
        assert step.objective.isfinite()

    def test_sparse_rows_give_the_same_scores(self):
        model, (x, _) = self.build().eval(), batch(5, 7, 3)
        assert torch.allclose(model(x.to_sparse_csr()), model(x), atol=1e-6)

    @pytest.mark.parametrize("setting", [{"members": 0}, {"hidden": 0}, {"input_dropout": 1.0}])
    def test_bad_hyperparameters_are_refused(self, setting):
        with pytest.raises(ModelError, match=next(iter(setting))):
            self.build(**setting)
