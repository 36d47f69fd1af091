"""A strategy, a model and a loss from outside the package, from the estimator to the report."""

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import tailbatch
from study_samples import tiny_file
from tailbatch import TailbatchClassifier, compare, make_selector
from tailbatch.data import MultiLabelDataset, load_dataset
from tailbatch.errors import DataError, SelectionError, StudyError
from tailbatch.imbalance import selection_weights
from tailbatch.losses import BCE, LOSSES, Loss, make_loss
from tailbatch.models import MODELS
from tailbatch.registry import plain_names
from tailbatch.report.page import write_report
from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.selection import STRATEGIES, LossDrivenSelector, RandomSelector, RankLaw
from tailbatch.study import Study, ThisProcess, WorkerPool, run_study
from tailbatch.testing import LossContract, ModelContract, SelectorContract

ROOT = Path(__file__).parents[2]

OUTSIDE = '''
"""The code of another package."""

import torch
from torch import nn

from tailbatch.losses import Loss
from tailbatch.models import MultiLabelModel, Step
from tailbatch.selection import LossDrivenSelector, RankLaw


def worst(losses, index):
    return losses.reshape(len(index), -1).max(axis=1)


class Worst(LossDrivenSelector):
    strategy = "outside_worst"
    default_pressure = 4.0

    def __init__(self, n_samples, *, selection_pressure=4.0, **settings):
        super().__init__(n_samples, score=worst, law=RankLaw(),
                         selection_pressure=selection_pressure, **settings)


class Brier(Loss):
    name = "outside_brier"

    def __init__(self, n_labels):
        super().__init__(n_labels)

    def cells(self, logits, y):
        return (logits.sigmoid() - y) ** 2


class Linear(MultiLabelModel):
    name = "outside_linear"

    def __init__(self, n_features, n_labels, *, bias=True):
        super().__init__(n_features, n_labels, bias=bias)
        self.linear = nn.Linear(n_features, n_labels, bias=bias)
        self.loss = Brier(None)

    def forward(self, x):
        return self.linear(x)

    def step(self, x, y):
        logits = self(x)
        samples = self.loss.rows(logits, y)
        return Step(samples.mean(), logits.detach(), samples.detach(), {})
'''
OUTSIDE += """

def small(n_features, n_labels, *, bias=True):
    return nn.Linear(n_features, n_labels, bias=bias)
"""
POINTS = """
[tailbatch.strategies]
outside_worst = outside_rooms:Worst
[tailbatch.models]
outside_linear = outside_rooms:Linear
[tailbatch.losses]
outside_brier = outside_rooms:Brier
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Make Python believe that a package is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "outside_rooms.py").write_text(OUTSIDE)
    info = folder / "outside_rooms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-rooms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("outside_rooms", None)
    for registry in (STRATEGIES, MODELS, LOSSES):
        for name in ("outside_worst", "outside_linear", "outside_brier"):
            registry.remove(name)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_file(tmp_path_factory.mktemp("data"))


@pytest.fixture
def data(tiny):
    return load_dataset(tiny)


QUICK = {"n_folds": 2, "epochs": 4, "batch_size": 16, "lr": 1e-2}
OUTSIDE_NAMES = {
    "models": ["outside_linear"],
    "strategies": ["random", "outside_worst"],
    "losses": ["outside_brier"],
}


# ---- by name -------------------------------------------------------------------------------------


def test_the_estimator_finds_them(installed, data, tmp_path):
    settings = {"epochs": 4, "batch_size": 16, "warm_up_epochs": 1, "random_state": 0}
    names = {"strategy": "outside_worst", "model": "outside_linear", "loss": "outside_brier"}
    classifier = TailbatchClassifier(**names, **settings).fit(data.X, data.Y)
    assert type(classifier.model_).__name__ == "Linear"
    assert type(classifier.model_.loss).__name__ == "Brier"
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(data.X), classifier.predict_proba(data.X))
    shuffled = TailbatchClassifier(**{**names, "strategy": "random"}, **settings)
    shuffled.fit(data.X, data.Y)
    assert not np.array_equal(shuffled.predict_proba(data.X), classifier.predict_proba(data.X))


def test_a_comparison_and_its_report_find_them(installed, data, tmp_path):
    result = compare(data, **OUTSIDE_NAMES, **QUICK, store=tmp_path / "store")
    table = result.table()
    assert table[["model", "loss", "strategy", "selection_pressure"]].to_numpy().tolist() == [
        ["outside_linear", "outside_brier", "random", ""],
        ["outside_linear", "outside_brier", "outside_worst", "4"],
    ]
    assert (table["runs"] == 2).all()
    assert table["macro_auc"].between(0, 1).all()
    page = result.report(tmp_path / "report.html").read_text()
    assert "outside_worst" in page
    assert "unregistered" not in next(iter(result.store.records())).diagnostics


def test_workers_of_a_study_find_them_and_what_they_can_import(installed, tiny, tmp_path):
    from outside_rooms import Linear, Worst, small

    study = Study(
        name="outside",
        datasets=[str(tiny)],
        models=[Linear, {"name": small, "bias": False}],
        strategies=["random", Worst],
        losses=["outside_brier"],
        n_folds=2,
        folds=[0],
        plan=TrainingPlan(epochs=2, batch_size=16, warm_up_epochs=1),
    )
    assert study.strategies == ["random", "outside_worst"], "the entry point's name is its name"
    store = ResultStore(tmp_path / "store")
    outcome = run_study(study, store, lambda: WorkerPool(1), workers=1)
    assert (outcome.done, outcome.failures) == (4, ())
    marks = {r.spec.model: r.diagnostics.get("unregistered") for r in store.records()}
    assert marks == {
        "outside_linear": None,
        study.models[1]["name"]: {"model": "outside_rooms.small"},
    }
    write_report(store, tmp_path / "report.html")
    assert "outside_worst" in (tmp_path / "report.html").read_text()


# ---- code that has no name -----------------------------------------------------------------------


class Softest(LossDrivenSelector):
    """Prefers samples of low loss; its settings are not typed."""

    strategy = "softest"

    def __init__(self, n_samples, **settings):
        super().__init__(n_samples, score=softness, law=RankLaw(), **settings)


def softness(losses, index):
    return np.exp(-losses.reshape(len(index), -1).mean(axis=1))


def narrow(n_features, n_labels, *, width=4):
    return nn.Sequential(nn.Linear(n_features, width), nn.ReLU(), nn.Linear(width, n_labels))


def local_code(power):
    """Return a strategy, a model and a loss that no other process could import."""

    def strategy(Y, *, X, batch_size, seed, epochs):
        assert X.shape[0] == Y.shape[0]
        return RandomSelector(Y.shape[0], batch_size=batch_size, seed=seed + 0)

    def model(n_features, n_labels):
        return nn.Linear(n_features, n_labels)

    class Powered(BCE):
        name = "powered"

        def cells(self, logits, y):
            return super().cells(logits, y) ** power

    return strategy, model, Powered


def test_local_code_is_compared_in_this_process_which_says_so(data, tmp_path, caplog):
    strategy, model, loss = local_code(power=2)
    settings = {"strategies": [strategy, Softest], "models": [model], "losses": [loss]}
    with caplog.at_level(logging.INFO, logger="tailbatch"):
        result = compare(data, **settings, **QUICK, store=tmp_path, workers=2)
    assert "other processes cannot import this code" in caplog.text
    assert result.outcome.done == 4
    record = next(iter(result.store.records()))
    assert record.diagnostics["unregistered"]["model"].endswith("local_code.<locals>.model")
    names = result.table()["strategy"].tolist()
    assert names == ["strategy", "softest"], "without the digests"
    page = result.report(tmp_path / "report.html").read_text()
    assert not re.search(
        r"(strategy|softest|model|powered)_[0-9a-f]{8}", page.partition("study file")[0]
    )
    assert not set(names) & set(STRATEGIES), "names of this process are not listed"
    # The same code again is the same runs; code that captured something else is not.
    same = dict(zip(("strategies", "models", "losses"), ([c] for c in local_code(2)), strict=True))
    assert compare(data, **same, **QUICK, store=tmp_path).outcome.skipped == 2
    other = {**same, "losses": [local_code(3)[2]]}
    assert compare(data, **other, **QUICK, store=tmp_path).outcome.done == 2


def test_the_estimator_takes_classes_and_functions(data, tmp_path):
    strategy, model, loss = local_code(power=1)
    settings = {"epochs": 3, "batch_size": 16, "warm_up_epochs": 1, "random_state": 0}
    made = TailbatchClassifier(model=model, strategy=strategy, loss=loss, **settings)
    made.fit(data.X, data.Y)
    made = TailbatchClassifier(model=narrow, model__width=3, strategy=Softest, **settings)
    made.set_params(selection_pressure=8).fit(data.X, data.Y)
    assert made.selection_pressure_ == 8
    made.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path, model=narrow)
    assert np.array_equal(again.predict_proba(data.X), made.predict_proba(data.X))


def test_a_pressure_or_option_that_the_strategy_does_not_use_is_an_error(data):
    for settings, message in [
        ({"selection_pressure": 64}, "random has no selection_pressure"),
        ({"selection_pressure": "auto"}, "random has no selection_pressure"),
        ({"strategy__power": 1.0}, "unknown option of random 'power'"),
    ]:
        with pytest.raises(SelectionError, match=message):
            TailbatchClassifier(strategy="random", epochs=1, **settings).fit(data.X, data.Y)


def test_a_study_hands_features_and_weights_to_every_strategy_that_takes_them(data):
    seen = {}

    class Weighted(RandomSelector):
        strategy = "weighted"

        def __init__(self, n_samples, *, weights=1.0, X=None, **settings):
            super().__init__(n_samples, **settings)
            seen.setdefault("weights", []).append(weights)
            seen.setdefault("rows", []).append(X.shape[0])

    assert Weighted.takes_features
    compare(data, strategies=[Weighted], **QUICK)
    weights = [w for w in seen["weights"] if len(w) > 8]  # the first call is a trial on a few rows
    assert {len(each) for each in weights} == set(seen["rows"]) - {8}
    assert all((each >= 1).all() and (each > 1).any() for each in weights)
    given = make_selector(Weighted, data.Y, X=data.X)
    assert np.array_equal(seen["weights"][-1], selection_weights(data.X, data.Y))
    assert given.strategy == "weighted"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": [7]}, "a model is a name, a table, a class or a function, got 7"),
        ({"models": "mlp"}, "takes a list for each model, got 'mlp'"),
        ({"models": [{"name": narrow, "wdth": 3}]}, "cannot be called with {'wdth': 3}"),
        ({"strategies": [{"name": Softest, "power": 1}]}, "unknown option of softest 'power'"),
        ({"losses": [make_loss("bce", np.eye(3, 5))]}, "is already made for some rows"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(settings, message, tiny):
    with pytest.raises(StudyError, match=message):
        Study(name="wrong", datasets=[str(tiny)], **settings)


def test_a_class_without_a_name_of_its_own_is_called_after_itself(tiny):
    class Mine(STRATEGIES["hard"]):
        pass

    class Named(Mine):
        strategy = "own"

    study = Study(name="mine", datasets=[str(tiny)], strategies=[Mine, Named])
    names = plain_names(study.strategies)
    assert list(names.values()) == ["Mine", "own"]


def test_a_study_takes_a_function_as_a_model(tiny):
    study = Study(name="own", datasets=[str(tiny)], models=[narrow, {"name": narrow, "width": 2}])
    first, second = study.models
    assert first == second["name"]
    assert first.startswith("narrow_")


# ---- what is compared ----------------------------------------------------------------------------


def test_arrays_frames_and_datasets_give_the_same(data):
    X, Y = np.asarray(data.X), np.asarray(data.Y)
    frames = pd.DataFrame(X), pd.DataFrame(Y.astype(int), columns=list(data.label_names))
    results = [
        compare(*given, strategies=["random"], **QUICK).table()["macro_auc"].tolist()
        for given in ((X, Y), frames, (data,), ([data],))
    ]
    assert results[0] == results[1] == results[2] == results[3]
    frame = pd.concat([frames[0].rename(columns=str), frames[1]], axis=1)
    named = compare(frame, list(data.label_names), strategies=["random"], **QUICK)
    assert named.table()["macro_auc"].tolist() == results[0]
    with pytest.raises(DataError, match="compare needs X and Y, a MultiLabelDataset"):
        compare(X)


def test_the_best_is_chosen_by_validation_rows_over_all_datasets(data):
    other = MultiLabelDataset.from_arrays(data.X[::-1], data.Y[::-1], name="other")
    models = [{"name": "mlp", "hidden": [8]}, {"name": "mlp", "hidden": [8], "lr": 1e-5}]
    result = compare([data, other], models=models, strategies=["random"], **QUICK)
    table = result.table(["macro_auc", "hamming_loss", "minority_average_precision"])
    assert len(table) == 4
    assert set(table["dataset"]) == {"tiny", "other"}
    means = table.groupby("plan_lr")["validation_macro_auc"].mean()
    assert result.best("macro_auc")["plan_lr"] == means.idxmax()
    means = table.groupby("plan_lr")["validation_minority_average_precision"].mean()
    assert result.best()["plan_lr"] == means.idxmax()
    means = table.groupby("plan_lr")["validation_hamming_loss"].mean()
    assert result.best("hamming_loss")["plan_lr"] == means.idxmin()
    with pytest.raises(StudyError, match="unknown metric 'auc'"):
        result.best("auc")
    start = "Comparison of 4 choices, 8 runs; best by validation minority_average_precision"
    assert repr(result).startswith(start)
    html = result._repr_html_()
    assert html.count("<tr>") == 5
    assert html.count("<b>") >= 2
    assert html.isascii()


def test_a_comparison_whose_runs_fail_says_why(data, caplog):
    def broken(n_features, n_labels):
        raise RuntimeError("the layer <melted>")

    asked = {"models": [broken], "strategies": ["random"], **QUICK}
    with pytest.raises(StudyError, match=r"2 of 2 runs failed: .*melted.*allow_failures=True"):
        compare(data, **asked)
    result = compare(data, **asked, allow_failures=True)
    assert len(result.outcome.failures) == 2
    assert "the layer <melted>" in repr(result)
    assert "&lt;melted&gt;" in result._repr_html_()
    with pytest.raises(StudyError, match=r"no run finished: .*melted"):
        result.table()


def test_ctrl_c_ends_a_study_in_this_process():
    class Interrupted:
        interrupted = True

    with pytest.raises(KeyboardInterrupt):
        ThisProcess().submit(Interrupted)


def test_compare_is_at_the_front_door():
    assert "compare" in tailbatch.__all__
    assert tailbatch.compare is compare


# ---- contracts -----------------------------------------------------------------------------------


class TestSoftest(SelectorContract):
    def make(self, n=23, **settings):
        return Softest(n, **{"batch_size": 5, "selection_pressure": 8, **settings})


class TestOutsideLinear(ModelContract):
    least_auc = 0.65  # its gradients are small

    @pytest.fixture(autouse=True)
    def choose(self, installed):
        import outside_rooms

        self.model_class = outside_rooms.Linear


class Hinge(Loss):
    name = "hinge"

    def __init__(self, n_labels, *, margin=1.0):
        super().__init__(n_labels, margin=margin)
        self.margin = margin

    def cells(self, logits, y):
        return torch.nn.functional.softplus(self.margin - (2 * y - 1) * logits)


class TestHinge(LossContract):
    loss_class = Hinge
    options = {"margin": 0.5}  # noqa: RUF012


# ---- inside the package --------------------------------------------------------------------------

STRATEGY = '''
"""Batches in reverse order."""

from tailbatch.selection.base import RandomSelector


class BackwardsSelector(RandomSelector):
    """Shuffled epochs with each batch reversed."""

    strategy: str = "backwards"

    def _draw(self, size, epoch, number):
        return super()._draw(size, epoch, number)[::-1]
'''


STUDY = """
import sys
from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.study import Study, ThisProcess, run_study

plan = TrainingPlan(epochs=4, batch_size=16)
study = Study(name="new", datasets=sys.argv[1:2], strategies=["backwards"], folds=[0], plan=plan)
run_study(study, ResultStore(sys.argv[2]), ThisProcess, workers=1)
"""


def test_a_new_strategy_touches_at_most_four_files(tiny, tmp_path):
    """Two files of code, changed here in a copy; the other two are its card and its test class."""
    copied = tmp_path / "src" / "tailbatch"
    shutil.copytree(ROOT / "src" / "tailbatch", copied)
    touched = [copied / "selection" / "backwards.py", copied / "selection" / "make.py"]
    touched[0].write_text(STRATEGY)
    listed = "    MinoritySelector,\n"
    line = "from tailbatch.selection.chain import ChainSelector\n"
    text = touched[1].read_text()
    assert text.count(listed) == 1
    text = text.replace(listed, f"{listed}    BackwardsSelector,\n")
    own = "from tailbatch.selection.backwards import BackwardsSelector\n"
    touched[1].write_text(text.replace(line, own + line))
    cards = [ROOT / "src" / "tailbatch" / "selection" / "README.md"]
    tests = [ROOT / "tests" / "selection" / "test_selectors.py"]
    assert all(path.exists() for path in cards + tests)
    assert len(touched + cards + tests) <= 4

    done = subprocess.run(
        [sys.executable, "-c", STUDY, tiny, tmp_path / "store"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (record,) = ResultStore(tmp_path / "store").records()
    assert record.spec.strategy == "backwards"
