"""What is shown of a training: a line per epoch, a table, a plot."""

import copy
import pickle

import numpy as np
import pytest

from tailbatch.estimator import TailbatchClassifier
from tailbatch.estimator.history import History
from tailbatch.training import Epoch

FAST = {
    "model": "mlp",
    "epochs": 3,
    "warm_up_epochs": 1,
    "batch_size": 16,
    "lr": 0.01,
    "random_state": 0,
}


def epochs(scores, metric="macro_auc"):
    return [
        Epoch(
            number=number,
            steps=number,
            seconds=1.5 * number,
            lr=0.1,
            batch_objective=1 / number,
            training_objective=None,
            training_bce=None,
            validation={} if score is None else {metric: score},
            minority_share=None,
            distinct_share=1.0,
        )
        for number, score in enumerate(scores, 1)
    ]


def fitted(**settings):
    X = np.random.default_rng(0).random((60, 4))
    return TailbatchClassifier(**FAST, **settings).fit(X, X[:, :2] > 0.6)


def test_verbose_prints_the_epochs_of_the_history(capsys):
    classifier = fitted(verbose=1)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["epoch", "loss", "Macro-AUC", "seconds"]
    assert [line.split()[0] for line in printed[2:]] == ["1", "2", "3", "predict"]
    best = [line.split()[0] for line in printed if " * " in line]
    assert best[-1] == str(classifier.best_epoch_)
    for epoch, line in zip(classifier.history_, printed[2:-1], strict=True):
        assert f"{epoch.validation['macro_auc']:.4f}" in line
    fitted()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("metric", "scores", "marks"),
    [
        ("macro_auc", [0.5, 0.7, 0.6, 0.7], [1, 1, 0, 1]),
        ("ranking_loss", [0.5, 0.7, 0.4, 0.4], [1, 0, 1, 1]),
        ("macro_auc", [None, 0.7, None, float("nan")], [0, 1, 0, 0]),
    ],
)
def test_a_star_marks_the_best_so_far(capsys, metric, scores, marks):
    from tailbatch.estimator.history import EpochTable

    table = EpochTable(metric)
    for epoch in epochs(scores, metric):
        table.on_epoch(epoch)
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [int("*" in line) for line in lines] == marks
    assert len({len(line) for line in lines}) == 1


def test_a_long_history_shows_its_ends_and_the_best():
    history = History(epochs([0.5] * 60), best_epoch=30, best_by="macro_auc")
    lines = repr(history).splitlines()[2:]
    shown = [line.split()[0] for line in lines]
    assert shown == ["1", "2", "3", "4", "5", "...", "30", "...", "56", "57", "58", "59", "60"]
    assert "*" in lines[6]
    html = history._repr_html_()
    assert html.count("<tr>") == 14
    assert "Macro-AUC" in html


def test_a_history_is_a_tuple_that_can_be_copied():
    history = History(epochs([0.5, 0.6]), best_epoch=2, best_by="macro_auc")
    assert history == tuple(epochs([0.5, 0.6]))
    for again in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):  # noqa: S301
        assert again == history
        assert again.best_epoch == 2
        assert repr(again) == repr(history)


def test_a_saved_history_comes_back(tmp_path):
    classifier = fitted(plan__best_by="macro_average_precision")
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert repr(again.history_) == repr(classifier.history_)
    assert "Macro average precision" in repr(again.history_)


def test_a_plot_has_the_loss_and_the_metric():
    plt = pytest.importorskip("matplotlib.pyplot")
    history = fitted().history_
    left, right = history.plot()
    assert left.lines[0].get_ydata().tolist() == [epoch.batch_objective for epoch in history]
    assert right.lines[0].get_ydata().tolist() == [e.validation["macro_auc"] for e in history]
    given = plt.figure().subplots()
    only, none = History(epochs([None, None]), best_epoch=2, best_by="macro_auc").plot(given)
    assert only is given
    assert none is None
    plt.close("all")


@pytest.mark.parametrize("scores", [[None, 0.99], [0.99], [1.0], [0.9, 1.0], [0.0, 0.3]])
def test_a_plot_shows_one_point_and_no_impossible_values(scores):
    plt = pytest.importorskip("matplotlib.pyplot")
    history = History(epochs(scores), best_epoch=len(scores), best_by="macro_auc")
    left, right = history.plot()
    known = [score for score in scores if score is not None]
    assert right.lines[0].get_marker() == ("o" if len(known) == 1 else "None")
    assert left.lines[0].get_marker() == ("o" if len(scores) == 1 else "None")
    low, high = right.get_ylim()
    assert 0 <= low <= min(known) <= max(known) <= high <= 1
    assert high - low > 0.02
    plt.close("all")


def test_a_classifier_shows_what_was_set():
    classifier = TailbatchClassifier(epochs=7, model__hidden=(4,))
    assert "epochs=7" in repr(classifier)
    assert "model__hidden" in repr(classifier)
    assert "TailbatchClassifier" in classifier._repr_html_()
