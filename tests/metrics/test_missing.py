"""Metrics with missing labels, against loops over what is known."""

import numpy as np
import pytest

from tailbatch.metrics import METRICS, evaluate


def problem(seed, n=30, q=6):
    rng = np.random.default_rng(seed)
    Y, scores = rng.random((n, q)) < 0.4, rng.random((n, q)).round(1)
    missing = rng.random((n, q)) < 0.3
    missing[0], missing[:, 0] = True, True  # a row and a label that nobody knows
    minority = np.arange(q) > 2
    return Y & ~missing, scores, missing, minority


def by_loops(name, Y, scores, missing, minority):
    metric = METRICS[name]
    values = scores if metric.needs == "scores" else scores > 0.5
    extra = [np.array([True])] if metric.minority else []
    if metric.averages == "cells":
        return metric.function(Y[~missing][:, None], values[~missing][:, None])
    if metric.averages == "labels":
        columns = np.flatnonzero(minority) if metric.minority else range(Y.shape[1])
        parts = [(~missing[:, j], [j]) for j in columns]
    else:
        parts = [([i], ~missing[i]) for i in range(len(Y))]
    results = []
    for rows, columns in parts:
        part = np.ix_(rows, columns)
        if Y[part].size:
            results.append(metric.function(Y[part], values[part], *extra))
    return np.nanmean(results)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("seed", range(3))
def test_a_metric_looks_at_what_is_known(name, seed):
    Y, scores, missing, minority = problem(seed)
    value = evaluate(Y, scores, minority=minority, only=[name], missing=missing)[name]
    assert value == pytest.approx(by_loops(name, Y, scores, missing, minority), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_missing_makes_no_difference(seed):
    Y, scores, missing, minority = problem(seed)
    one = evaluate(Y, scores, minority=minority, missing=missing)
    two = evaluate(Y | missing, np.where(missing, 1.0, scores), minority=minority, missing=missing)
    assert one == two


def test_nothing_missing_is_the_usual_value():
    Y, scores, missing, minority = problem(0)
    masked = evaluate(Y, scores, minority=minority, missing=np.zeros_like(missing))
    assert masked == pytest.approx(evaluate(Y, scores, minority=minority), rel=1e-9)
