from dataclasses import replace

import pytest
import torch
from scipy import sparse

from tailbatch.errors import ModelError
from tailbatch.losses import make_loss
from tailbatch.models import Ensemble, make_model
from tailbatch.models.ensemble import _dropped
from tailbatch.testing.model_contract import ModelContract, batch


class TestEnsemble(ModelContract):
    model_class = Ensemble

    def test_the_logit_is_the_mean_of_the_members(self):
        model, (x, _) = self.build().eval(), batch(5, 7, 3)
        hidden = torch.relu(model.body(x)).view(5, 4, 128)
        networks = [hidden[:, m] @ model.output[m] + model.bias[m] for m in range(4)]
        expected = torch.stack([*networks, model.skip(x)]).mean(0)
        assert torch.allclose(model(x), expected, atol=1e-6)

    def test_the_objective_is_the_mean_of_the_members_losses(self, toy):
        model = make_model("ensemble", toy, loss="weighted_bce", dropout=0, input_dropout=0)
        x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
        loss = make_loss("weighted_bce", toy.Y)
        expected = torch.stack([loss(member, y) for member in model._logits(x)[0]]).mean()
        assert torch.allclose(model.step(x, y).objective, expected)

    def test_measurements_are_left_out_more_often_than_words(self, toy):
        assert make_model("ensemble", toy).hyperparameters["input_dropout"] == 0.5
        assert make_model("ensemble", toy, input_dropout=0.1).input_dropout == 0.1
        words = replace(toy, X=sparse.csr_array(toy.X * (toy.X > 0.8)))
        assert make_model("ensemble", words).input_dropout == 0.2

    def test_members_share_no_gradient(self):
        model, (x, y) = self.build(dropout=0, input_dropout=0), batch(6, 7, 3)
        model.loss.rows(model._logits(x)[0, 1], y).mean().backward()
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

    def test_dropout_leaves_out_its_share_and_keeps_the_mean(self):
        torch.manual_seed(0)
        dropped = _dropped(torch.ones(400, 501), 0.2)
        assert (dropped == 0).float().mean() == pytest.approx(0.2, abs=0.005)
        assert dropped.mean() == pytest.approx(1, abs=0.005)
        assert len(dropped.unique()) == 2

    @pytest.mark.parametrize(
        "setting", [{"members": 0}, {"hidden": 0}, {"input_dropout": 1.0}, {"parts": 0}]
    )
    def test_bad_hyperparameters_are_refused(self, setting):
        with pytest.raises(ModelError, match=next(iter(setting))):
            self.build(**setting)


class TestParts:
    """Each part of the rows is held out from its own members."""

    PART = torch.tensor([0, 1, 2, 0, 1, 2])

    def build(self, loss=None, **options):
        options = {"members": 2, "hidden": 4, "dropout": 0, "input_dropout": 0} | options
        model = Ensemble(7, 3, parts=3, **options)
        torch.nn.init.normal_(model.skip.weight)  # so that linear members differ, too
        if loss is not None:
            model.use_loss(make_loss(loss, (batch(6, 7, 3)[1] > 0).numpy()))
        return model

    @pytest.mark.parametrize("loss", [None, "weighted_bce", "two_way"])
    def test_labels_of_held_out_rows_change_no_gradient_of_their_members(self, loss):
        gradients = []
        for flip in (False, True):
            torch.manual_seed(0)
            model, (x, y) = self.build(loss), batch(6, 7, 3)
            x, y = x.clone(), y.clone()
            if flip:
                y[self.PART == 1] = 1 - y[self.PART == 1]
                x[self.PART == 1] += 1
            model.step(x, y, part=self.PART).objective.backward()
            gradients.append((model.output.grad.clone(), model.skip.weight.grad.clone()))
        (networks, linear), (flipped, flipped_linear) = gradients
        assert torch.equal(networks[2:4], flipped[2:4])
        assert torch.equal(linear[:, 3:6], flipped_linear[:, 3:6])
        assert not torch.equal(networks[:2], flipped[:2])

    def test_the_objective_is_the_mean_over_the_members_that_train_on_a_row(self):
        model, (x, y) = self.build(), batch(6, 7, 3)
        logits = model._logits(x)
        each = torch.stack([model.loss.rows(member, y) for part in logits for member in part])
        each = each.view(3, 3, 6).mean(1)
        expected = [each[[k for k in range(3) if k != part], row].mean()
                    for row, part in enumerate(self.PART.tolist())]  # fmt: skip
        step = model.step(x, y, part=self.PART)
        assert torch.allclose(step.sample_objective, torch.stack(expected))
        weights = torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
        weighted = model.step(x, y, weights, self.PART).objective
        assert torch.allclose(weighted, (weights * torch.stack(expected)).sum())

    def test_rows_of_no_part_train_every_member(self):
        model, (x, y) = self.build(), batch(6, 7, 3)
        nowhere = torch.full((6,), -1)
        assert torch.allclose(model.step(x, y, part=nowhere).objective, model.step(x, y).objective)

    def test_held_out_scores_are_those_of_the_members_that_have_not_seen_the_row(self):
        model, (x, _) = self.build().eval(), batch(6, 7, 3)
        logits = model._logits(x)
        expected = [logits[part, :, row].mean(0) for row, part in enumerate(self.PART)]
        assert torch.allclose(model.held_out(x, self.PART), torch.stack(expected))

    def test_missing_labels_cost_nothing(self):
        model, (x, y) = self.build(), batch(6, 7, 3)
        model.mask_missing_labels()
        y[0] = torch.nan
        step = model.step(x, y, part=self.PART)
        assert step.sample_objective[0] == 0
        assert step.objective.isfinite()

    def test_sparse_rows_give_the_same_step(self):
        model, (x, y) = self.build(), batch(6, 7, 3)
        dense, csr = (model.step(each, y, part=self.PART) for each in (x, x.to_sparse_csr()))
        assert torch.allclose(dense.objective, csr.objective)

    def test_every_part_starts_at_the_prior(self, toy):
        model = make_model("ensemble", toy, parts=3)
        prior = torch.from_numpy(toy.Y).float().mean(0)
        assert torch.allclose(model.skip.bias.view(3, -1).sigmoid(), prior.expand(3, -1))
