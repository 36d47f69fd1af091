"""The recipe for Spark, on a local Spark; needs Java and the extra ``spark``."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailbatch.estimator import TailbatchClassifier

GUIDE = Path(__file__).parents[2] / "docs" / "large_data.md"


def recipe():
    """Return the guide's function for ``mapInPandas``, as text."""
    (found,) = re.findall(r"^```py\n(import pandas.*?)^```", GUIDE.read_text(), re.DOTALL | re.M)
    return found


def test_the_recipe_is_python_and_scores_frames(tmp_path, monkeypatch):
    X = fitted(tmp_path, monkeypatch)
    names = {}
    needs_no_spark = re.sub(r"^from pyspark.*\n", "", recipe().partition("spark =")[0], flags=re.M)
    exec(needs_no_spark, names)
    found = pd.concat(names["score"](iter([X[:30], X[30:]])), ignore_index=True)
    expected = TailbatchClassifier.load("model").predict_proba(X[["a", "b"]])
    np.testing.assert_allclose(found[["high", "low"]], expected, atol=1e-6)
    assert found["ticket"].tolist() == X["ticket"].tolist()


@pytest.mark.slow
def test_spark_scores_what_the_estimator_does(tmp_path, monkeypatch):
    pytest.importorskip("pyspark", reason="needs the extra spark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    X = fitted(tmp_path, monkeypatch)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # else what is first on the path
    X.to_parquet("new.parquet")
    names = {}
    exec(recipe(), names)
    names["spark"].stop()
    found = pd.read_parquet("scores.parquet").sort_values("ticket", ignore_index=True)
    expected = TailbatchClassifier.load("model").predict_proba(X[["a", "b"]])
    np.testing.assert_allclose(found[["high", "low"]], expected, atol=1e-6)
    assert found["ticket"].tolist() == X["ticket"].tolist()


def fitted(folder, monkeypatch):
    """Save a model as the guide calls it in a folder that becomes the current one; return rows."""
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"ticket": np.arange(80), "a": rng.random(80), "b": rng.random(80)})
    Y = pd.DataFrame({"high": X["a"] > 0.5, "low": X["b"] < 0.2}).astype(int)
    classifier = TailbatchClassifier("mlp", epochs=2, lr=0.01, random_state=0, device="cpu")
    classifier.fit(X[["a", "b"]], Y).save("model")
    return X
