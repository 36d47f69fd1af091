"""That plots of labels show every label."""

import numpy as np
import pytest

from tailbatch.data import MultiLabelDataset
from tailbatch.imbalance import rare_labels
from tailbatch.selection.shown import _plot_exposure

Figure = pytest.importorskip("matplotlib.figure").Figure


def plotted(counts, n=400):
    Y = np.arange(n)[:, None] < counts
    return Y, MultiLabelDataset.from_arrays(np.zeros((n, 1)), Y).plot(Figure().subplots())


def test_the_rarest_label_is_seen_and_rare_labels_are_marked():
    Y, axes = plotted([400, 90, 8, 0, 1])
    assert axes.get_yscale() == "log"
    assert 0 < axes.get_ylim()[0] < 1
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert dict(zip(texts, heights, strict=True)) == {
        "other labels": [400, 90, 1, 0],
        "rare labels": [8],
    }
    assert rare_labels(Y).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("counts", [[5, 5], [0, 0], [40, 30]])
def test_labels_that_are_nearly_as_common_start_at_zero(counts):
    _, axes = plotted(counts)
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] <= 0


def test_the_highest_exposure_is_not_cut():
    exposure = np.array([1.03, 1.05, np.nan])
    axes = _plot_exposure(exposure, np.array([10, 100, 0]), Figure().subplots())
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] >= 1.05 * 1.09
