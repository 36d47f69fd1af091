"""The estimator: scikit-learn's conventions, awkward data, and saved folders that were tampered with."""

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from tailbatch import losses
from tailbatch.errors import DataError, ModelError, ResultError, TrainingError
from tailbatch.estimator import PRESSURES, TailbatchClassifier
from tailbatch.estimator.fitting import plan_of
from tailbatch.models import MODELS
from tailbatch.training.checkpoints import save_checkpoint

FAST = {
    "model": "mlp",
    "epochs": 2,
    "warm_up_epochs": 1,
    "batch_size": 16,
    "lr": 0.01,
    "random_state": 0,
}


def rows(n=80, d=6, q=3, seed=0):
    X = np.random.default_rng(seed).random((n, d))
    return X, X[:, :q] > 0.7


# Batches and validation rows are drawn by row, so a row twice is not a row with twice the weight.
EXPECTED = dict.fromkeys(
    [
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ],
    "rows are drawn at random",
) | {"check_classifier_multioutput": "many labels have tuned thresholds, not 0.5"}


@parametrize_with_checks(
    [TailbatchClassifier(epochs=12, lr=0.02, batch_size=32, warm_up_epochs=1)],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class Net(nn.Sequential):
    def __init__(self, n_features, n_labels, width=8):
        super().__init__(
            nn.Linear(n_features, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, n_labels)
        )


@pytest.fixture(scope="module")
def fitted():
    X, Y = rows()
    return TailbatchClassifier(**FAST).fit(X, Y)


# ---- shapes and kinds of input ---------------------------------------------------------------


@pytest.mark.parametrize("as_Y", [np.asarray, sparse.csr_array, np.ndarray.tolist, pd.DataFrame])
@pytest.mark.parametrize("as_X", [np.asarray, sparse.csr_array, np.ndarray.tolist, pd.DataFrame])
def test_every_kind_of_input_gives_the_same_scores(fitted, as_X, as_Y):
    X, Y = rows()
    columns = {"columns": [f"c{i}" for i in range(6)]} if as_X is pd.DataFrame else {}
    again = TailbatchClassifier(**FAST).fit(as_X(X, **columns), as_Y(Y.astype(int)))
    scores = again.predict_proba(as_X(X, **columns))
    assert scores == pytest.approx(fitted.predict_proba(X), abs=1e-6)


def test_many_labels_give_matrices(fitted):
    X, Y = rows()
    assert fitted.predict(X).shape == fitted.predict_proba(X).shape == Y.shape
    assert fitted.decision_function(X).shape == Y.shape
    assert fitted.predict(X).dtype == np.int64
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.label_names_ == ("label_0", "label_1", "label_2")
    assert np.array_equal(fitted.predict(X), fitted.predict_proba(X) > fitted.thresholds_)
    assert fitted.score(X, Y) == accuracy_score(Y, fitted.predict(X))


def test_one_column_stays_a_column():
    X, Y = rows(q=1)
    classifier = TailbatchClassifier(**FAST).fit(X, Y)
    assert classifier.predict(X).shape == classifier.predict_proba(X).shape == (80, 1)


def test_one_dimension_is_a_binary_problem_of_any_two_classes():
    X, Y = rows(q=1)
    y = np.where(Y[:, 0], "yes", "no")
    classifier = TailbatchClassifier(**FAST | {"epochs": 20}).fit(X, y)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.predict_proba(X).shape == (80, 2)
    assert classifier.decision_function(X).shape == (80,)
    assert set(classifier.predict(X)) == {"no", "yes"}
    assert classifier.score(X, y) > 0.9


def test_names_come_from_frames_or_settings():
    X, Y = rows()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    classifier = TailbatchClassifier(**FAST).fit(frame, pd.DataFrame(Y, columns=["x", "y", "z"]))
    assert classifier.label_names_ == ("x", "y", "z")
    assert classifier.feature_names_in_.tolist() == list("abcdef")
    named = TailbatchClassifier(**FAST, label_names=["p", "q", "r"]).fit(X, Y)
    assert named.label_names_ == ("p", "q", "r")
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(frame.rename(columns={"a": "new"}))
    with pytest.raises(DataError, match="3 label columns have 2 names"):
        TailbatchClassifier(**FAST, label_names=["p", "q"]).fit(X, Y)


# ---- awkward data ----------------------------------------------------------------------------


def awkward():
    X, Y = rows()
    constant, zeros = X.copy(), X.copy()
    constant[:, 2] = 5
    zeros[::3] = 0
    none, everything, absent = Y.copy(), Y.copy(), Y.copy()
    none[::2], everything[::2], absent[:, 1] = False, True, False
    yield "a constant feature", constant, Y
    yield "rows of zeros", zeros, Y
    yield "rows without labels", X, none
    yield "rows with all labels", X, everything
    yield "a label that never occurs", X, absent
    yield "a label that always occurs", X, ~absent
    yield "no labels at all", X, np.zeros_like(Y)
    yield "one feature", X[:, :1], Y
    yield "fewer rows than a batch", X[:9], Y[:9]
    yield "two rows", X[:2], Y[:2]
    yield "huge values", X * 1e300, Y


@pytest.mark.parametrize(("X", "Y"), [pytest.param(X, Y, id=name) for name, X, Y in awkward()])
def test_awkward_data_is_learned_from(X, Y):
    for strategy in ("adaptive", "minority"):
        classifier = TailbatchClassifier(**FAST, strategy=strategy, thresholds="tuned").fit(X, Y)
        scores = classifier.predict_proba(X)
        assert scores.shape == Y.shape
        assert ((scores > 0) & (scores < 1)).all()
        assert classifier.predict(X).shape == Y.shape


@pytest.mark.parametrize("as_X", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "inf")])
def test_values_that_are_no_numbers_are_found(fitted, as_X, value, name):
    X, Y = rows()
    X[7, 2] = value
    message = f"X has {name} in row 7, column 2; remove or impute"
    with pytest.raises(DataError, match=message):
        TailbatchClassifier(**FAST).fit(as_X(X), Y)
    with pytest.raises(DataError, match=message):
        fitted.predict(as_X(X))


def test_a_missing_value_in_a_frame_is_filled_in_and_named(caplog):
    X, Y = rows()
    frame = pd.DataFrame(X, columns=["len", "width", "c", "d", "e", "f"])
    frame.loc[3, "width"] = np.nan
    TailbatchClassifier(**FAST).fit(frame, Y)
    assert (
        "filled in 1 missing value with means or most frequent values: 'width' (1)" in caplog.text
    )


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"epochs": 0}, ResultError, "epochs must be at least 1, got 0"),
        ({"epochs": "ten"}, TrainingError, "training plan does not fit"),
        ({"lr": -1}, ResultError, "lr must be above 0"),
        ({"model": "dele"}, ModelError, "unknown model 'dele'; did you mean 'dela'"),
        ({"model__latnt": 3}, ModelError, "mlp has no hyperparameter 'latnt'"),
        ({"strategy": "adaptve"}, ValueError, "unknown strategy 'adaptve'"),
        ({"selection_pressure": 0.5}, ValueError, "selection_pressure must be finite and >= 1"),
        (
            {"plan__patience": 3},
            TrainingError,
            "no field 'patience'; did you mean 'early_stopping'",
        ),
        ({"plan__scheduler": "StpLR"}, TrainingError, "did you mean 'StepLR'"),
        ({"thresholds": 1.5}, ModelError, 'thresholds must be "tuned" or a probability'),
        ({"thresholds": "best"}, ModelError, 'thresholds must be "tuned" or a probability'),
        ({"validation_fraction": 1.0}, ValueError, "from 0 and below 1, got 1.0"),
        ({"validation_fraction": 0, "thresholds": "tuned"}, DataError, "needs validation rows"),
        (
            {"validation_fraction": 0, "selection_pressure": "auto"},
            DataError,
            "needs validation rows",
        ),
        ({"device": "tpu9"}, TrainingError, "device must be"),
        ({"random_state": -1}, ValueError, "random_state must be a whole number from 0"),
    ],
)
def test_wrong_settings_are_named_when_fitting(settings, error, message):
    with pytest.raises(error, match=message):
        TailbatchClassifier(**FAST | settings).fit(*rows())


def test_a_fit_that_failed_is_no_fit():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST | {"strategy": "none"})
    with pytest.raises(ValueError, match="unknown strategy"):
        classifier.fit(X, Y)
    with pytest.raises(NotFittedError):
        classifier.predict(X)


def test_labels_that_are_not_binary_are_refused():
    X, Y = rows()
    with pytest.raises(DataError, match="labels must be 0 or 1, got 2 in row 0, label column 0"):
        TailbatchClassifier(**FAST).fit(X, Y + 2)


# ---- scikit-learn's tools --------------------------------------------------------------------


def test_nested_settings_reach_the_model_the_strategy_and_the_plan():
    X, Y = rows()
    classifier = TailbatchClassifier(
        **FAST | {"model": "dela", "strategy": "minority"},
        model__latent=5,
        strategy__power=0.9,
        plan__early_stopping=1,
    )
    assert clone(classifier).get_params()["model__latent"] == 5
    classifier.set_params(model__latent=7, epochs=20, lr=0.5).fit(X, Y)
    assert classifier.model_.hyperparameters["latent"] == 7
    assert len(classifier.history_) < 20


def test_grid_search_cross_validation_and_pipelines():
    X, Y = rows()
    search = GridSearchCV(
        TailbatchClassifier(**FAST),
        {"model__hidden": [(4,), (8,)], "strategy": ["random", "hard"]},
        scoring="roc_auc",
        cv=2,
        error_score="raise",
    ).fit(X, Y)
    assert search.best_params_["model__hidden"] in [(4,), (8,)]
    scores = cross_val_predict(TailbatchClassifier(**FAST), X, Y, method="predict_proba", cv=2)
    assert scores.shape == Y.shape
    pipeline = make_pipeline(StandardScaler(), TailbatchClassifier(**FAST))
    pipeline.set_output(transform="pandas").fit(pd.DataFrame(X, columns=list("abcdef")), Y)
    assert pipeline[-1].feature_names_in_.tolist() == list("abcdef")


def test_a_pickle_predicts_the_same(fitted):
    X, _ = rows()
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - our own bytes
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_random_states():
    X, Y = rows()
    before = np.random.get_state()[1].copy()
    scores = {}
    for name, state in {
        "0": 0,
        "0 again": 0,
        "numpy integer": np.int64(0),
        "1": 1,
        "fresh": None,
        "fresh again": None,
        "given": np.random.RandomState(5),
        "given again": np.random.RandomState(5),
    }.items():
        classifier = TailbatchClassifier(**FAST | {"random_state": state}).fit(X, Y)
        scores[name] = classifier.predict_proba(X).tobytes()
    assert scores["0"] == scores["0 again"] == scores["numpy integer"]
    assert scores["given"] == scores["given again"]
    assert len(set(scores.values())) == 5
    assert np.array_equal(np.random.get_state()[1], before)


def test_auto_pressure_is_the_best_on_validation():
    X, Y = rows(n=120)
    settings = FAST | {"epochs": 4, "strategy": "hard", "validation_fraction": 0.3}
    auto = TailbatchClassifier(**settings, selection_pressure="auto").fit(X, Y)
    scores = {}
    for pressure in PRESSURES:
        one = TailbatchClassifier(**settings, selection_pressure=pressure).fit(X, Y)
        scores[pressure] = one.history_[one.best_epoch_ - 1].validation["macro_auc"]
    assert scores[auto.selection_pressure_] == max(scores.values())
    same = TailbatchClassifier(**settings, selection_pressure=auto.selection_pressure_).fit(X, Y)
    assert np.array_equal(auto.predict_proba(X), same.predict_proba(X))


def test_tuned_thresholds_decide_predictions():
    X, Y = rows(n=200)
    plain = TailbatchClassifier(**FAST, model__hidden=(8,)).fit(X, Y)
    tuned = TailbatchClassifier(**FAST, model__hidden=(8,), thresholds="tuned").fit(X, Y)
    assert np.array_equal(plain.predict_proba(X), tuned.predict_proba(X))
    assert (tuned.thresholds_ != 0.5).any()
    assert np.array_equal(tuned.predict(X), tuned.predict_proba(X) > tuned.thresholds_)


def test_an_epoch_measures_only_what_is_asked_for():
    X, Y = rows()
    lean = TailbatchClassifier(**FAST, plan__best_by="macro_average_precision").fit(X, Y)
    assert [list(epoch.validation) for epoch in lean.history_] == [["macro_average_precision"]] * 2
    assert all(epoch.training_bce is None for epoch in lean.history_)
    asked = TailbatchClassifier(**FAST, plan__training_loss_every=1).fit(X, Y)
    assert all(epoch.training_bce > 0 for epoch in asked.history_)


def test_a_budget_in_steps_decides_the_length_of_a_fit():
    X, Y = rows()
    fit = TailbatchClassifier(**FAST, plan__steps=12, plan__evaluate_every=10).fit(X, Y)
    assert [epoch.steps for epoch in fit.history_] == [5, 10, 12]
    assert fit.best_epoch_ in (2, 3)


def test_sparse_rows_are_fitted_and_scored_like_dense_ones(monkeypatch):
    X, Y = rows(d=40)
    X = sparse.csr_array(X * (X > 0.95))
    settings = {**FAST, "scale": False}
    one = TailbatchClassifier(**settings).fit(X, Y)
    assert one.predict_proba(X) == pytest.approx(one.predict_proba(X.toarray()), abs=1e-6)
    monkeypatch.setattr("tailbatch.training.rows._SPARSE_SHARE", -1.0)
    two = TailbatchClassifier(**settings).fit(X, Y)
    assert one.predict_proba(X) == pytest.approx(two.predict_proba(X), abs=1e-4)


def test_without_validation_rows_all_rows_train():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST, validation_fraction=0).fit(X, Y)
    assert classifier.best_epoch_ == 2
    assert classifier.history_[0].steps == 5


def test_without_scaling_features_are_taken_as_they_are():
    X, Y = rows()
    scaled = TailbatchClassifier(**FAST).fit(X * 100, Y)
    plain = TailbatchClassifier(**FAST, scale=False).fit(X * 100, Y)
    assert plain.scaling_ is None
    assert scaled.predict_proba(X * 100) != pytest.approx(plain.predict_proba(X * 100))


@pytest.mark.parametrize("scale", ["minmax", "maxabs", "standard", "tfidf", "auto"])
def test_a_scaling_is_chosen_by_name_saved_and_restored(scale, tmp_path):
    X, Y = rows()
    X = sparse.csr_array(np.rint(0.7 * X))
    classifier = TailbatchClassifier(**FAST, scale=scale).fit(X, Y)
    assert classifier.scaling_.name == ("tfidf" if scale == "auto" else scale)
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert again.scale == scale
    assert type(again.scaling_) is type(classifier.scaling_)
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_an_unknown_scaling_is_refused():
    with pytest.raises(DataError, match="unknown scaling 'min-max'; did you mean 'minmax'"):
        TailbatchClassifier(**FAST, scale="min-max").fit(*rows())


def test_an_interrupted_fit_continues(tmp_path, fitted):
    from tailbatch.errors import TrainingInterrupted
    from tailbatch.training import Callback

    class Stop(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            import signal

            signal.raise_signal(signal.SIGINT)

    X, Y = rows()
    with pytest.raises(TrainingInterrupted):
        TailbatchClassifier(**FAST, checkpoint_folder=tmp_path, callbacks=(Stop(),)).fit(X, Y)
    resumed = TailbatchClassifier(**FAST, checkpoint_folder=tmp_path).fit(X, Y)
    assert np.array_equal(resumed.predict_proba(X), fitted.predict_proba(X))


# ---- folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_classifier_comes_back(tmp_path, model):
    X, Y = rows()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    labels = pd.DataFrame(Y, columns=["=x", "naïve", "z"])
    classifier = TailbatchClassifier(**FAST | {"model": model, "thresholds": "tuned"}).fit(
        frame, labels
    )
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(frame), classifier.predict_proba(frame))
    assert np.array_equal(again.predict(frame), classifier.predict(frame))
    assert again.label_names_ == classifier.label_names_
    assert again.history_ == classifier.history_
    assert again.best_epoch_ == classifier.best_epoch_
    assert np.array_equal(again.minority_labels_, classifier.minority_labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame.rename(columns={"a": "new"}))
    assert clone(again).get_params()["model"] == model


def test_a_binary_classifier_comes_back(tmp_path):
    X, Y = rows(q=1)
    y = np.where(Y[:, 0], "yes", "no")
    classifier = TailbatchClassifier(**FAST).fit(X, y)
    classifier.save(tmp_path)
    assert np.array_equal(TailbatchClassifier.load(tmp_path).predict(X), classifier.predict(X))


def test_a_factory_of_your_own(tmp_path):
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST | {"model": Net, "model__width": 5}).fit(X, Y)
    assert clone(classifier).model is Net
    classifier.save(tmp_path)
    with pytest.raises(ModelError, match=r"pass the function that builds it, load\(folder, model="):
        TailbatchClassifier.load(tmp_path)
    again = TailbatchClassifier.load(tmp_path, model=Net)
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_saving_needs_a_fit_and_loading_a_folder(tmp_path):
    with pytest.raises(ValueError, match="not fitted yet"):
        TailbatchClassifier().save(tmp_path)
    with pytest.raises(ModelError, match=r"there is no classifier in .*classifier\.safetensors"):
        TailbatchClassifier.load(tmp_path / "nowhere")


def test_a_full_disk_keeps_the_old_classifier(tmp_path, fitted, monkeypatch):
    X, Y = rows()
    fitted.save(tmp_path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        TailbatchClassifier(**FAST, model__hidden=(4,)).fit(X, Y).save(tmp_path)
    monkeypatch.undo()
    again = TailbatchClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert {path.name for path in tmp_path.iterdir()} == {"classifier.safetensors", "README.md"}


class Bomb:
    def __reduce__(self):
        return Path("exploded").touch, ()


def test_pickles_in_a_folder_are_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "classifier.safetensors"
    target.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelError, match="does not hold a classifier"):
        TailbatchClassifier.load(tmp_path)
    torch.save({"weights": Bomb()}, target)
    with pytest.raises(ModelError, match="does not hold a classifier"):
        TailbatchClassifier.load(tmp_path)
    assert not Path("exploded").exists()


def rewritten(folder, change):
    """Save a fitted classifier's state after tampering with it by `change`."""
    from tailbatch.training.checkpoints import load_checkpoint

    path = folder / "classifier.safetensors"
    state = load_checkpoint(path)
    change(state)
    save_checkpoint(path, state)


TAMPERED = {
    "no weights": lambda s: s.pop("weights"),
    "weights of another shape": lambda s: s["weights"].update({"classifier.bias": torch.zeros(99)}),
    "weights of another kind": lambda s: s["weights"].update(
        {"classifier.bias": torch.zeros(3, dtype=torch.int8)}
    ),
    "weights that are text": lambda s: s["weights"].update({"classifier.bias": "zeros"}),
    "weights that are NaN": lambda s: s["weights"].update(
        {"classifier.bias": torch.full((3,), torch.nan)}
    ),
    "a giant model": lambda s: s["hyperparameters"].update(hidden=(10**12,)),
    "an impossible model": lambda s: s["hyperparameters"].update(hidden=(10**30,)),
    "a model of text": lambda s: s["hyperparameters"].update(hidden="big"),
    "an unknown hyperparameter": lambda s: s["hyperparameters"].update(path="../../etc/passwd"),
    "an unknown model": lambda s: s["settings"].update(model="../../../bin/sh"),
    "an unknown setting": lambda s: s["settings"].update(fit="x"),
    "settings that are a list": lambda s: s.update(settings=[1]),
    "too many features": lambda s: s.update(n_features=10**15),
    "no features": lambda s: s.update(n_features=-1),
    "features that are text": lambda s: s.update(n_features="six"),
    "a feature without name": lambda s: s.update(feature_names=["a"]),
    "labels that are numbers": lambda s: s.update(label_names=[1, 2, 3]),
    "labels that are nothing": lambda s: s.update(label_names=None),
    "too few thresholds": lambda s: s.update(thresholds=np.zeros(1)),
    "thresholds that are NaN": lambda s: s.update(thresholds=np.full(3, np.nan)),
    "scaling of another size": lambda s: s["scaling"].update(shift=np.zeros(2)),
    "scaling of another kind": lambda s: s["scaling"].update(code="x"),
    "epochs that are text": lambda s: s.update(history=["x"]),
    "a best epoch of text": lambda s: s.update(best_epoch="last"),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_tampered_folders_are_refused(tmp_path, fitted, change):
    fitted.save(tmp_path)
    rewritten(tmp_path, change)
    with pytest.raises(ModelError, match=r"classifier\.safetensors"):
        TailbatchClassifier.load(tmp_path)


def test_giant_claims_and_deep_json_are_refused(tmp_path):
    path = tmp_path / "classifier.safetensors"
    claim = json.dumps({"t0": {"dtype": "F32", "shape": [10**13], "data_offsets": [0, 4 * 10**13]}})
    for header in (claim.encode(), b'{"__metadata__":{"tailbatch":"' + b"[" * 100_000 + b'"}}'):
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(ModelError, match="does not hold a classifier"):
            TailbatchClassifier.load(tmp_path)


def test_the_default_trains_for_enough_steps_and_a_number_of_epochs_is_obeyed():
    X, Y = rows()
    default = TailbatchClassifier(random_state=0, plan__min_steps=50).fit(X, Y)
    assert default.model_.name == "ensemble"
    assert default.history_[-1].steps == 50
    assert default.scaling_.name == "standard"
    asked = TailbatchClassifier(random_state=0, epochs=2).fit(X, Y)
    assert len(asked.history_) == 2


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 1e-2),
        ({"model": "dela"}, 1e-3),
        ({"model": "mpvae"}, 1e-3),
        ({"model": "dela", "lr": 0.5}, 0.5),
        ({"lr": 0.2}, 0.2),
    ],
)
def test_without_a_learning_rate_the_model_decides(settings, rate):
    assert plan_of(TailbatchClassifier(**settings).get_params()).lr == rate


# ---- losses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"loss": "weighted_bce"}, {"power": 0.5}),
        ({"loss": "weighted_bce", "loss__power": 1.0}, {"power": 1.0}),
        ({"loss": {"name": "weighted_bce", "power": 1.0}, "loss__max_weight": 2.0}, {"power": 1.0}),
        ({"loss": losses.weighted_bce}, {"power": 0.5}),
        ({"loss": losses.WeightedBCE}, {"power": 0.5}),
        ({"loss": "weighted_bce", "model": Net}, {"power": 0.5}),
        ({"loss": "weighted_bce", "model": "dela"}, {"power": 0.5}),
    ],
)
def test_a_loss_is_trained_on_and_comes_back(tmp_path, settings, options):
    X, Y = rows()
    classifier = clone(TailbatchClassifier(**FAST | settings)).fit(X, Y)
    loss = classifier.model_.loss
    assert loss.name == "weighted_bce"
    assert options.items() <= loss.options.items()
    assert (loss.positive_weights != 1).all()
    classifier.save(tmp_path)
    factory = settings.get("model") if settings.get("model") is Net else None
    again = TailbatchClassifier.load(tmp_path, model=factory)
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert np.array_equal(again.model_.loss.positive_weights, loss.positive_weights)
    assert again.fit(X, Y).model_.loss.name == "weighted_bce"


def test_a_ready_loss_is_left_as_it_was():
    X, Y = rows()
    loss = losses.equalized(Y)
    classifier = TailbatchClassifier(**FAST, loss=loss).fit(X, Y)
    assert (loss.negative_gradients == 0).all()
    assert (classifier.model_.loss.negative_gradients > 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "focl"}, "unknown loss 'focl'; did you mean 'focal'"),
        ({"loss": "focal", "loss__gama": 1}, "focal has no option 'gama'; did you mean 'gamma'"),
        ({"loss__gamma": 1.0}, "loss__gamma needs a loss by name"),
        ({"loss": "bce", "model": "c2ae"}, "c2ae takes no loss, 'bce' or other: it ranks"),
        ({"model__objective": "weighted_bce"}, "a separate setting, loss='weighted_bce'"),
        ({"loss": losses.BCE(7)}, "bce was made for 7 labels, and Y has 3"),
    ],
)
def test_a_loss_that_cannot_be_is_named(settings, message):
    with pytest.raises(ModelError, match=message):
        TailbatchClassifier(**FAST | settings).fit(*rows())


@pytest.mark.parametrize("as_Y", [np.asarray, pd.DataFrame, sparse.csr_array])
def test_a_missing_label_is_named(as_Y):
    X, Y = rows()
    labels = Y.astype(float)
    labels[5, 1] = np.nan
    with pytest.raises(
        DataError, match=r"Y has no value in row 5, column 1.*; say 0 or 1, leave such rows"
    ):
        TailbatchClassifier(**FAST).fit(X, as_Y(labels))
    frame = pd.DataFrame(Y.astype(object), columns=["a", "b", "c"])
    frame.loc[2, "c"] = None
    with pytest.raises(DataError, match=r"row 2, column 2 \('c'\)"):
        TailbatchClassifier(**FAST).fit(X, frame)
