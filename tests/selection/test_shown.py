"""What people see of a selector: text, tables, plots."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from tailbatch.errors import SelectionError
from tailbatch.selection import HardSelector, Linear, UniformSelector, make_selector

mpl.use("Agg")
Y = np.repeat(np.eye(3, dtype=bool), [80, 15, 5], axis=0)


def test_a_selector_shows_what_it_draws_and_where_it_stands():
    selector = make_selector("minority", Y, batch_size=32, selection_pressure=8, max_lag=2)
    next(iter(selector))
    lines = repr(selector).splitlines()
    assert lines[:4] == [
        "strategy            minority",
        "samples             100, 3 labels",
        "batches             4 of 32 an epoch",
        "next                epoch 0, batch 1",
    ]
    assert "selection_pressure  8" in lines
    assert "max_lag             2" in lines
    assert lines[-1] == "warm_up_epochs      3"
    assert not any("digest" in line or "array" in line for line in lines)


def test_every_setting_that_is_on_is_shown_once():
    selector = make_selector("importance", Y, mix=Linear(0.3, 1), epochs=5, beta=0.5)
    text = repr(selector)
    assert "mix                 Linear(start=0.3, end=1)" in text
    assert "beta                0.5" in text
    assert repr(UniformSelector(5, batch_size=2)).count("\n") == 5


def test_notebooks_get_a_table():
    selector = make_selector("hard", Y, batch_size=32)
    html = selector._repr_html_()
    assert "<th style='text-align:left'>strategy</th><td>hard</td>" in html
    assert html.count("<tr>") == len(repr(selector).splitlines())


def test_the_plots_return_axes_with_what_was_asked_for():
    selector = HardSelector(
        100, batch_size=10, labels=Y, initial_losses=np.arange(100.0), selection_pressure=16
    )
    axes = selector.plot()
    times = axes.lines[0].get_ydata()
    np.testing.assert_allclose(times, np.sort(selector.probabilities()) * 100)
    with pytest.raises(SelectionError, match="no batch of this epoch has been drawn yet"):
        selector.diagnostics().plot()
    for index in selector:
        selector.observe(np.ones(len(index)))
    report = selector.diagnostics()
    given = Figure().subplots()
    assert report.plot(given) is given
    x, y = given.lines[0].get_data()
    assert x.tolist() == [80, 15, 5]
    assert y.tolist() == report.label_exposure.tolist()
    with pytest.raises(SelectionError, match="does not know the labels: make it with labels=Y"):
        UniformSelector(5, batch_size=2).diagnostics().plot()


def test_a_long_line_is_thinned_out():
    line = UniformSelector(50_000, batch_size=100).plot().lines[0]
    assert len(line.get_xdata()) == 2000
