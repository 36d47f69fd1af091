import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from models import naive
from models.fast_algebra import FastAlgebraContract
from tailbatch.data import MultiLabelDataset
from tailbatch.imbalance import label_cooccurrence
from tailbatch.models import CLIF, make_model
from tailbatch.models.clif import _graph_misfit
from tailbatch.testing.model_contract import ModelContract, batch

TOY_Y = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=bool)
# n = (3, 3, 0), N_01 = 2: P(1|0) = P(0|1) = 2/3; the third label never occurs.
TOY_GRAPH = torch.tensor([[0, 2 / 3, 0], [2 / 3, 0, 0], [0, 0, 0]])


class TestCLIF(FastAlgebraContract, ModelContract):
    model_class = CLIF
    naive = staticmethod(naive.clif)

    def test_cached_gate_equals_the_recomputed_one(self):
        model, (x, _) = self.build().eval(), batch(5, 7, 3)
        first = model.predict_proba(x)
        kept = model._cached_gate
        assert torch.equal(kept, model.label_gate(model.embed_labels()))
        assert torch.equal(model.predict_proba(x), first)
        assert model._cached_gate is kept

    @pytest.mark.parametrize(
        "change",
        [
            lambda model: model.train(),
            lambda model: model.load_state_dict(model.state_dict()),
            lambda model: model.step(*batch(5, 7, 3)),
            lambda model: model(torch.zeros(1, 7)),
        ],
        ids=["train", "load_state_dict", "step", "forward with gradient"],
    )
    def test_cached_gate_is_dropped(self, change):
        model = self.build().eval()
        model.predict_proba(torch.zeros(1, 7))
        assert model._cached_gate is not None
        change(model)
        assert model._cached_gate is None

    def test_prediction_follows_new_weights_and_precision(self):
        model, other = self.build().eval(), self.build(gate="sigmoid")
        x, _ = batch(5, 7, 3)
        model.predict_proba(x)
        with torch.no_grad():
            other.gate.weight.add_(1.0)
        model.load_state_dict(other.state_dict())
        assert torch.equal(model.predict_proba(x), other.predict_proba(x))
        assert model.double().predict_proba(x.double()).dtype == torch.float64

    def test_graph_comes_from_the_training_rows(self, toy):
        model = make_model("clif", toy)
        assert torch.allclose(model.graph, torch.from_numpy(label_cooccurrence(toy.Y)).float())
        assert torch.equal(make_model("clif", toy, graph="identity").graph, torch.eye(5))

    def test_linear_gate_is_not_squashed(self):
        model = self.build(gate="linear")
        embedding = model.embed_labels()
        assert torch.equal(model.label_gate(embedding), model.gate(embedding))

    def test_reference_preset_has_the_reference_sizes(self, toy):
        settings = make_model("clif", toy, preset="reference").hyperparameters
        assert (settings["embedding"], settings["hidden"], settings["in_layers"]) == (5, 768, 3)


@pytest.mark.parametrize("Y", [TOY_Y, csr_array(TOY_Y)], ids=["dense", "csr"])
def test_graph_by_hand(Y):
    train = MultiLabelDataset.from_arrays(np.eye(Y.shape[0]), Y)
    assert torch.allclose(make_model("clif", train).graph, TOY_GRAPH)


def test_identity_graph_cannot_be_fitted():
    # Its target is 2 I and a cosine is at most 1, so orthogonal embeddings leave q / q^2.
    assert _graph_misfit(torch.eye(4), torch.eye(4)).item() == pytest.approx(1 / 4, abs=1e-4)
