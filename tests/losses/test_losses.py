"""The losses against torch, timm and their formulas; finite far out; rebuilt from their state."""

import json
import math
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from losses.timm_values import COUNTS, N_SAMPLES, VALUES, batch
from tailbatch import losses
from tailbatch.errors import DataError, ModelError
from tailbatch.imbalance import positive_weights
from tailbatch.losses import LOSSES, Asymmetric, Loss, make_loss, register_loss
from tailbatch.testing import LossContract

TIMM = json.loads(VALUES.read_text())
# Rows in which label j has COUNTS[j] positives.
Y = np.arange(N_SAMPLES)[:, None] < np.array(COUNTS)
NAMES = sorted(LOSSES)


def close(left, right):
    return torch.allclose(left, torch.as_tensor(right, dtype=left.dtype), rtol=1e-4, atol=1e-6)


# ---- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_plain_and_weighted_cross_entropy_are_torchs(seed):
    logits, y = batch(seed)
    weights = torch.from_numpy(positive_weights(Y)).float()
    summed = F.binary_cross_entropy_with_logits(logits, y, reduction="sum")
    assert torch.allclose(losses.bce(Y)(logits, y), summed / len(y))
    cells = F.binary_cross_entropy_with_logits(logits, y, pos_weight=weights, reduction="none")
    assert torch.equal(losses.weighted_bce(Y).cells(logits, y), cells)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_is_torchvisions_formula(gamma):
    logits, y = batch(0)
    p = torch.sigmoid(logits)
    p_t = p * y + (1 - p) * (1 - y)
    bce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    assert close(losses.focal(Y, gamma=gamma).cells(logits, y), bce * (1 - p_t) ** gamma)


@pytest.mark.parametrize("seed", range(3))
def test_cells_are_timms(seed):
    logits, y = batch(seed)
    options = {"gamma_negative": 2.0, "gamma_positive": 1.0, "margin": 0.1}
    made = {
        "asymmetric": losses.asymmetric(Y),
        "asymmetric_1": losses.asymmetric(Y, **options),
        "distribution_balanced": losses.distribution_balanced(Y),
        "distribution_balanced_2": losses.distribution_balanced(Y, gamma=2.0),
    }
    for name, loss in made.items():
        assert close(loss.cells(logits, y), TIMM[name][seed]), name


@pytest.mark.parametrize("seed", range(3))
def test_the_two_way_loss_is_timms(seed):
    assert close(losses.two_way(Y)(*batch(seed)), TIMM["two_way"][seed])


def test_weights_are_timms():
    balanced = losses.class_balanced(Y).positive_weights
    assert balanced == pytest.approx(np.array(TIMM["class_balanced"]), rel=1e-5)
    weighted = losses.weighted_bce(Y, max_weight=20.0).positive_weights
    assert weighted == pytest.approx(np.array(TIMM["weighted_bce"]), rel=1e-5)


@given(st.floats(-50, 50), st.booleans())
def test_asymmetric_loss_is_its_formula(logit, relevant):
    p = 1 / (1 + math.exp(-logit))
    shifted = max(p - 0.05, 0)
    log_p = -math.log1p(math.exp(-logit))
    expected = -log_p if relevant else -math.log1p(-shifted) * shifted**4
    logits = torch.tensor([[logit]], dtype=torch.float64)
    value = Asymmetric(1).cells(logits, torch.full_like(logits, relevant))
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_equalized_loss_follows_its_gradients():
    loss, (logits, y) = losses.equalized(Y), batch(0)
    positive, negative = np.zeros(5), np.zeros(5)
    for _ in range(3):
        seen = positive + negative > 0
        ratio = np.divide(positive, negative, out=np.full(5, 100.0), where=negative > 0)
        share = np.where(seen, 1 / (1 + np.exp(-12 * (ratio - 0.8))), 1)
        weights = y.numpy() * (1 + 4 * (1 - share)) + (1 - y.numpy()) * share
        bce = F.binary_cross_entropy_with_logits(logits, y, reduction="none").numpy()
        assert loss.cells(logits, y).numpy() == pytest.approx(weights * bce, rel=1e-4)
        pull = weights * np.abs(1 / (1 + np.exp(-logits.double().numpy())) - y.numpy())
        positive += (pull * y.numpy()).sum(0)
        negative += (pull * (1 - y.numpy())).sum(0)
    before = loss.cell_weights(y)
    loss.eval().cells(logits, y)
    assert torch.equal(loss.cell_weights(y), before)


# ---- what all of them promise --------------------------------------------------------------------


@pytest.fixture(params=NAMES)
def loss_class(request):
    return LOSSES[request.param]


class TestPromises(LossContract):
    @pytest.fixture(autouse=True)
    def choose(self, loss_class):
        self.loss_class = loss_class


def test_a_label_without_positives_is_told_of_once(caplog):
    losses.weighted_bce(Y)
    (record,) = caplog.records
    assert "1 of 5 labels have no positive in the training rows" in record.getMessage()
    assert "column 4" in record.getMessage()
    losses.bce(Y)
    assert len(caplog.records) == 1


def test_the_two_way_loss_without_positives_or_negatives_is_zero_and_has_a_gradient():
    loss = losses.two_way(Y)
    for y in (torch.zeros(3, 5), torch.ones(3, 5)):
        logits = torch.randn(3, 5, requires_grad=True)
        value = loss(logits, y)
        value.backward()
        assert value == 0
        assert (logits.grad == 0).all()


@pytest.mark.parametrize(
    "labels", [Y, Y.astype(int), csr_array(Y), torch.from_numpy(Y).float(), Y.tolist()]
)
def test_labels_come_in_any_form(labels):
    assert losses.weighted_bce(labels).positive_weights == pytest.approx(positive_weights(Y))


# ---- weights that others read --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_cell_weights_are_the_weights_of_the_positives_where_there_are_such(name):
    loss, (_, y) = make_loss(name, Y), batch(0)
    weights = loss.cell_weights(y)
    assert weights.shape == y.shape
    assert (weights > 0).all()
    if name in ("weighted_bce", "class_balanced"):
        expected = 1 + y.numpy() * (loss.positive_weights - 1)
        assert weights.numpy() == pytest.approx(expected, rel=1e-5)
    else:
        assert (loss.positive_weights == 1).all()


@pytest.mark.parametrize("name", ["weighted_bce", "class_balanced", "bce"])
def test_calibrated_logits_are_those_of_the_frequencies(name):
    loss = make_loss(name, Y[:, :4])
    y = torch.from_numpy(Y[:, :4]).float()
    bias = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(bias.expand(len(y), 4), y)
        value.backward()
        return value

    optimizer.step(closure)
    shares = loss.calibrated(bias.detach()).sigmoid().numpy()
    assert shares == pytest.approx(Y[:, :4].mean(0), rel=1e-2)


# ---- weights of samples --------------------------------------------------------------------------


def test_weights_may_be_an_array_as_selectors_give_them():
    loss, (logits, y) = losses.bce(Y), batch(0)
    weights = np.linspace(0, 1, len(y))
    expected = loss(logits, y, torch.from_numpy(weights))
    assert torch.equal(loss(logits, y, weights), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_without_weight_teaches_nothing_unless_the_loss_refuses_weights(name):
    """Weights per sample correct a loss only if no sample's value depends on another sample."""
    loss, (logits, y) = make_loss(name, Y).eval(), batch(0)
    weights = torch.ones(len(y))
    weights[1:] = 0
    if loss.compares_samples:
        with pytest.raises(
            ModelError, match=r"two_way cannot be trained with .*draw with coverage"
        ):
            loss(logits, y, weights)
    else:
        torch.testing.assert_close(loss(logits, y, weights), loss(logits[:1], y[:1]))


# ---- the front door ------------------------------------------------------------------------------


class Doubled(losses.BCE):
    name = "doubled"

    def cells(self, logits, y):
        return 2 * super().cells(logits, y)


def test_a_loss_is_made_from_whatever_names_it():
    ready = losses.weighted_bce(Y)
    assert make_loss(ready, Y) is ready
    assert make_loss(losses.WeightedBCE, Y, power=1.0).options["power"] == 1.0
    assert make_loss(losses.focal, Y).name == "focal"
    assert make_loss({"name": "focal", "gamma": 1.0}, Y, gamma=3.0).options == {"gamma": 3.0}
    assert make_loss(Doubled, Y).name == "doubled"


@pytest.fixture
def tidy():
    """Forget what a test registers."""
    yield
    LOSSES.remove("doubled")


@pytest.mark.usefixtures("tidy")
def test_a_loss_of_ones_own_is_registered_by_name():
    register_loss(register_loss(Doubled))
    assert isinstance(make_loss("doubled", Y), Doubled)

    class Other(Doubled):
        pass

    with pytest.raises(ModelError, match="there already is a loss 'doubled'"):
        register_loss(Other)
    with pytest.raises(ModelError, match=r"a loss is a subclass of tailbatch\.losses\.Loss"):
        register_loss(len)
    with pytest.raises(ModelError, match="Nameless has no name of its own"):
        register_loss(type("Nameless", (Loss,), {}))


@pytest.mark.usefixtures("tidy")
def test_losses_of_other_packages_are_asked_for_only_where_a_name_is_unknown(monkeypatch):
    asked = []

    def entry_points(*, group):
        asked.append(group)
        return [EntryPoint("doubled", f"{__name__}:Doubled", group)]

    monkeypatch.setattr("tailbatch.registry.entry_points", entry_points)
    make_loss("bce", Y)
    assert asked == []
    assert type(make_loss("doubled", Y)).__name__ == "Doubled"
    assert asked == ["tailbatch.losses"]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: make_loss("focl", Y),
            r"unknown loss 'focl'; did you mean 'focal'\? Known: bce",
        ),
        (lambda: make_loss("focal", Y, gama=1), "focal has no option 'gama'; did you mean 'gamma'"),
        (
            lambda: losses.bce(Y, mising=Y),
            "bce has no option 'mising'; did you mean 'missing'",
        ),
        (lambda: losses.bce(Y, gamma=1), "bce has no option 'gamma'"),
        (lambda: make_loss({"name": "bce", "missing": Y}, Y), "bce has no option 'missing'"),
        (lambda: make_loss({"gamma": 1}, Y), "a table of a loss needs a name, got"),
        (
            lambda: make_loss(losses.focal(Y), Y, gamma=1),
            "the options gamma are for a loss by name",
        ),
        (lambda: make_loss(lambda Y: 3, Y), "a loss is a name, a table, .*, got 3"),
        (lambda: make_loss(7, Y), "a loss is a name, a table, .*, got 7"),
        (lambda: make_loss(losses.bce(Y[:, :2]), Y), "bce was made for 2 labels, and Y has 5"),
        (lambda: losses.focal(Y, gamma=-1), "gamma must be a number from 0, got -1"),
        (lambda: losses.focal(Y, gamma="2"), "gamma must be a number from 0, got '2'"),
        (lambda: losses.weighted_bce(Y, power=math.nan), "power must be a number from 0, got nan"),
        (
            lambda: losses.asymmetric(Y, gamma_negative=0.5),
            "gamma_negative must be 0 or at least 1",
        ),
        (
            lambda: losses.asymmetric(Y, margin=1),
            "margin must be a number from 0 and below 1, got 1",
        ),
        (
            lambda: losses.class_balanced(Y, beta=1),
            "beta must be a number from 0 and below 1, got 1",
        ),
        (
            lambda: losses.weighted_bce(Y, max_weight=0),
            "max_weight must be a number above 0, got 0",
        ),
        (lambda: losses.weighted_bce(Y, power=True), "power must be a number from 0, got True"),
        (
            lambda: losses.bce(Y)(np.zeros((2, 5)), torch.zeros(2, 5)),
            r"bce takes tensors, got logits of type ndarray: hand over torch\.as_tensor\(logits\)",
        ),
        (
            lambda: losses.bce(Y).rows(torch.zeros(2, 5), np.zeros((2, 5))),
            r"got labels of type ndarray: hand over torch\.as_tensor\(labels\)",
        ),
        (lambda: losses.weighted_bce(Y, weights=[1, 2]), "for each of 5 labels, got 2"),
        (lambda: losses.weighted_bce(Y, weights=[1, 0, 1, 1, 1]), "finite numbers above 0"),
        (lambda: losses.weighted_bce(Y, weights="ab"), "finite numbers above 0, one a label"),
        (lambda: losses.weighted_bce(Y, weights=2.0), "finite numbers above 0, one a label"),
        (lambda: losses.bce(Y)(torch.zeros(2, 5), torch.zeros(2, 4)), r"got \(2, 5\) and \(2, 4\)"),
        (lambda: losses.bce(Y)(torch.zeros(2, 4), torch.zeros(2, 4)), r"labels of shape \(b, 5\)"),
        (
            lambda: losses.bce(Y)(torch.zeros(2, 5), torch.zeros(2, 5), torch.ones(3)),
            r"weights must have one number for each of 2 samples, got shape \(3,\)",
        ),
        (lambda: Loss(0), "n_labels must be at least 1, got 0"),
    ],
)
def test_misuse_says_what_to_change(act, message):
    with pytest.raises(ModelError, match=message):
        act()


@pytest.mark.parametrize("power", [np.float32(0.5), np.float64(0.5), np.int64(1)])
def test_a_number_of_numpy_is_a_number(power):
    loss = losses.weighted_bce(Y, power=power, max_weight=np.float32(20))
    assert json.loads(json.dumps(loss.options))["power"] == power
    expected = losses.weighted_bce(Y, power=float(power), max_weight=20.0).positive_weights
    assert np.array_equal(loss.positive_weights, expected)


def test_missing_labels_are_named():
    labels = Y.astype(float)
    labels[3, 1] = np.nan
    with pytest.raises(DataError, match="got nan in row 3, label column 1"):
        losses.weighted_bce(labels)
