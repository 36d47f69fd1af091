import pytest
import torch

from models import naive
from models.fast_algebra import FastAlgebraContract
from tailbatch.errors import ModelError
from tailbatch.models import DELA, seeded
from tailbatch.models.dela import _gated_kl
from tailbatch.testing.model_contract import ModelContract, batch


class TestDELA(FastAlgebraContract, ModelContract):
    model_class = DELA
    naive = staticmethod(naive.dela)

    def test_closed_gates_make_training_logits_those_of_inference(self, monkeypatch):
        model = self.build(off_noise=None, dropout=0.0)
        monkeypatch.setattr(model, "gates", lambda: torch.zeros_like(model.gate_table))
        x, y = batch(5, 7, 3)
        assert torch.allclose(model.step(x, y).logits.sigmoid(), model.predict_proba(x), atol=1e-6)

    def test_prediction_equals_decoding_every_label(self):
        model = self.build().eval().double()
        x, _ = batch(5, 7, 3, dtype=torch.float64)
        assert torch.allclose(model.predict_proba(x), naive.dela_predict(model, x), atol=1e-12)

    @pytest.mark.parametrize(("off_noise", "low"), [(None, 0.0), (0.1, 0.1)])
    def test_gates_take_two_values_and_have_gradients(self, off_noise, low):
        model = self.build(40, 6, off_noise=off_noise)
        with seeded(0, "gates"):
            gates = model.gates()
        expected = torch.where(gates > 0.5, 1.0, low)
        assert torch.allclose(gates, expected, atol=1e-6)
        assert 0.5 < (gates > 0.5).float().mean() < 0.9
        (gradient,) = torch.autograd.grad(gates.sum(), model.gate_table)
        assert (gradient != 0).any()

    def test_eval_mode_gates_are_fixed(self):
        model = self.build().eval()
        assert torch.equal(model.gates(), model.gates())

    def test_sample_objective_averages_to_the_objective(self):
        step = self.build().step(*batch(5, 7, 3))
        assert torch.allclose(step.sample_objective.mean(), step.objective)

    @pytest.mark.parametrize(("decay_gates", "decay"), [(False, 0.0), (True, 0.1)])
    def test_gates_have_their_own_rate_and_decay(self, decay_gates, decay):
        model = self.build(decay_gates=decay_gates)
        main, gates = model.param_groups(lr=0.01, weight_decay=0.1)
        assert (main["lr"], main["weight_decay"]) == (0.01, 0.1)
        assert (gates["lr"], gates["weight_decay"]) == (pytest.approx(0.008), decay)
        assert gates["params"][0] is model.gate_table

    def test_temperature_must_be_positive(self):
        with pytest.raises(ModelError, match="temperature must be positive, got 0"):
            self.build(temperature=0)


def test_divergence_separates():
    with seeded(0, "kl"):
        mean, logvar = torch.randn(2, 4, 6, dtype=torch.float64)
        gates = torch.rand(3, 6, dtype=torch.float64)
    assert torch.allclose(_gated_kl(mean, logvar, gates), naive.dela_kl(mean, logvar, gates))
