"""What the evidence pages compute themselves: the paper's numbers, speed, labels, agreement."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from reproduction.figures.agreement import loss_agreement
from reproduction.figures.agreement import panels as panels_of
from reproduction.measures import epochs_to_lowest, label_pairs
from reproduction.published import beside_published, printed, printed_p_note, printed_tests

from analysis.test_analysis import ADAPTIVE, DELA, HARD, MLP, RANDOM, SCENE, evidence_of
from report.synthetic import make_arrays, make_record, make_specs
from tailbatch.analysis.keys import Dataset, Learner, named
from tailbatch.results.frames import gather


def test_epochs_to_the_baselines_lowest_loss_are_counted_in_its_own():
    rows = [(arm, fold, 0) for fold in range(2) for arm in ("random", "adaptive")]
    losses = {0: [0.5, 0.4, 0.3], 1: [0.4, 0.3, 0.2], 2: [0.5, 0.2, np.nan], 3: [0.6, 0.3, np.nan]}
    curves = pd.DataFrame(
        [
            (digest, 5.0 * number, loss)
            for digest, line in losses.items()
            for number, loss in enumerate(line, start=1)
        ],
        columns=["digest", "number", "training_bce"],
    )
    evidence = evidence_of(rows, curves=curves)
    found = epochs_to_lowest(evidence, ADAPTIVE, RANDOM)
    assert found.tolist() == [pytest.approx(100 * 10 / 15), np.inf]
    assert epochs_to_lowest(evidence, RANDOM, RANDOM).tolist() == [100, 100]
    assert epochs_to_lowest(evidence, HARD, RANDOM).empty


def test_labels_gain_on_the_same_fold_and_seed():
    rows = [("random", 0, 0), ("adaptive", 0, 0), ("adaptive", 1, 0)]
    labels = pd.DataFrame(
        [
            (digest, label, float(label == "rare"), precision + 0.1 * digest, 1.0 + digest)
            for digest in range(3)
            for label, precision in (("rare", 0.2), ("common", 0.6), ("empty", np.nan))
        ],
        columns=["digest", "label", "minority", "average_precision", "exposure"],
    )
    evidence = evidence_of(rows, labels=labels)
    table = label_pairs(evidence, ADAPTIVE, RANDOM)
    assert table["label"].tolist() == ["rare", "common"]
    assert table["gain"].tolist() == pytest.approx([0.1, 0.1])
    assert table["minority"].tolist() == [True, False]


def test_published_numbers_stand_beside_ours_with_their_direction():
    ours = pd.DataFrame(
        {
            "data": [replace(SCENE, preparation="paper")] * 2,
            "learner": [DELA] * 2,
            "arm": [RANDOM, ADAPTIVE],
            "metric": "one_error",
            "mean": [0.30, 0.20],
        }
    )
    paper = pd.DataFrame(
        {
            "model": "DELA",
            "dataset": "scene",
            "metric": "one_error",
            "strategy": ["random", "adaptive"],
        }
    ).assign(value=[0.25, 0.26])
    (row,) = beside_published(ours, paper).to_dict("records")
    assert row["agrees"] is False
    assert row["difference"] == pytest.approx(-0.06)
    assert row["note"] == ""


def test_other_label_columns_are_said_to_be_others():
    ours = pd.DataFrame({"learner": [DELA] * 2, "arm": [RANDOM, ADAPTIVE], "metric": "macro_f"})
    for preparation, note in (
        ("paper", "the paper measured other label columns"),
        ("as-published", ""),
    ):
        table = ours.assign(data=[Dataset("llog-f", preparation)] * 2, mean=[0.1, 0.2])
        assert beside_published(table, printed("results"))["note"].unique().tolist() == [note]


def test_every_dataset_of_the_paper_is_found_by_its_catalog_name():
    paper = printed("results")
    names = ["corel5k", "rcv1subset1", "rcv1subset2", "rcv1subset3", "yahoo-arts", "cal500"]
    names += ["yahoo-business", "tmc2007", "bibtex", "enron", "yeast", "llog-f", "scene"]
    ours = pd.DataFrame(
        [
            (Dataset(name, "paper"), Learner("c2ae"), arm, "macro_f", 0.1)
            for name in names
            for arm in (RANDOM, ADAPTIVE)
        ],
        columns=["data", "learner", "arm", "metric", "mean"],
    )
    assert list(map(str, beside_published(ours, paper)["data"])) == sorted(names)


def test_the_correlation_of_the_two_losses_is_pearsons_at_every_kept_epoch():
    specs = make_specs(datasets=("scene",), strategies=("adaptive",), folds=2)
    specs += make_specs(datasets=("scene",), strategies=("adaptive",), folds=2, pressures=(64.0,))
    evidence = named(gather(map(make_record, specs), make_arrays))
    table = loss_agreement(evidence).set_index(["learner", "arm", "epoch"])
    expected = np.mean(
        [
            np.corrcoef(arrays["sample_losses_3"], arrays["sample_objectives_3"])[0, 1]
            for arrays in map(make_arrays, specs[:2])
        ]
    )
    assert specs[0].model == "mlp"
    assert table.loc[(MLP, ADAPTIVE, "3"), "loss_correlation"] == pytest.approx(expected)
    assert table.loc[(MLP, ADAPTIVE, "3"), "runs"] == 2
    panels = panels_of(table.reset_index())
    assert [panel.title for panel in panels] == ["Epoch 3", "Epoch 12"]
    assert panels[0].categories == ["dela", "mlp"]
    assert panels[0].values[ADAPTIVE][1] == pytest.approx(expected)
    assert set(map(str, panels[0].values)) == {"adaptive", "adaptive 64"}


def test_the_note_names_the_printed_p_values_that_do_not_follow():
    tests = printed_tests()
    off = {(row.model, row.metric) for row in tests[~tests["follows"]].itertuples()}
    assert off == {
        ("PACA", "macro_f"), ("CLIF", "macro_f"), ("CLIF", "micro_f"), ("PACA", "ranking_loss"),
        ("C2AE", "hamming_loss"), ("PACA", "hamming_loss"), ("DELA", "hamming_loss"),
        ("C2AE", "one_error"), ("PACA", "one_error"), ("DELA", "one_error"),
    }  # fmt: skip
    note = printed_p_note(tests)
    assert note.startswith("Of the paper's 30 printed p-values, 10 do not follow")
    assert "DELA One error 0.1465 (its table gives 0.0398)" in note
    assert note.endswith("The verdict changes for DELA One error.")
