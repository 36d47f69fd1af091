import numpy as np
import pytest
from matplotlib.image import imread

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.errors import TailbatchError
from tailbatch.report.description import describe
from tailbatch.report.figures import MINORITY, label_frequencies, save


def facts(n_labels=6, names=None):
    Y = np.arange(64)[:, None] < 2 ** np.arange(n_labels) % 61
    data = MultiLabelDataset.from_arrays(np.eye(64), Y, name="demo", label_names=names)
    return describe(data)


def bars(figure):
    return [patch for container in figure.axes[0].containers for patch in container]


def test_each_label_with_a_positive_has_a_bar_of_its_height():
    described = facts()
    heights = sorted((bar.get_height() for bar in bars(label_frequencies(described))), reverse=True)
    assert heights == [label.positives for label in described.labels]


def test_rare_labels_have_their_own_color():
    described = facts()
    colors = {bar.get_height(): bar.get_facecolor() for bar in bars(label_frequencies(described))}
    rare = {label.positives for label in described.labels if label.is_minority}
    assert rare
    orange = tuple(int(MINORITY[i : i + 2], 16) / 255 for i in (1, 3, 5))
    assert {
        height for height, color in colors.items() if color[:3] == pytest.approx(orange)
    } == rare


def test_few_labels_are_named_and_many_are_not():
    named = label_frequencies(facts(3, ["x", "y", "z"])).axes[0]
    assert [tick.get_text() for tick in named.get_xticklabels()] == ["z", "y", "x"]
    assert label_frequencies(facts(40)).axes[0].get_xlabel() == "label, commonest first"


def test_names_are_drawn_literally(tmp_path):
    figure = label_frequencies(facts(3, ["$x^", "a\x1b[31m", "long" * 20]))
    texts = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert texts[1:] == ["a?[31m", r"\$x^"]
    assert len(texts[0]) == 28
    save(figure, tmp_path / "odd.png")


def test_png_and_svg_are_written_the_same_each_time(tmp_path):
    for ending in ("png", "svg"):
        paths = [tmp_path / f"{number}.{ending}" for number in (1, 2)]
        for path in paths:
            save(label_frequencies(facts()), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
    height, width, _ = imread(tmp_path / "1.png").shape
    assert width > height > 500
    assert (tmp_path / "1.svg").read_text().startswith("<?xml")


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(TailbatchError, match=r"written as \.png, \.svg or \.pdf, got .*\.gif"):
        save(label_frequencies(facts()), tmp_path / "x.gif")
