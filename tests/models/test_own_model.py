"""The models of the page "Bring your own parts" run as they are printed."""

import re
from pathlib import Path

import torch

from tailbatch.models import MultiLabelModel

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def test_the_page_runs_and_its_models_train():
    names = {}
    models = []
    page = PAGE.read_text().split("\n## A score of your own")[0]
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
        models += [names["model"]] if names["model"] not in models else []
    train = names["train"]
    x = torch.rand(8, train.n_features)
    y = (torch.rand(8, train.n_labels) < 0.2).float()
    assert len(models) == 4
    weighted = names["classifier"].model_
    assert (weighted.loss.positive_weights > 1).all()  # every label is rarer than one row in two
    for model in (*models, weighted):
        assert isinstance(model, MultiLabelModel)
        model.step(x, y).objective.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
        assert model.predict_proba(x).shape == (8, train.n_labels)
    assert models[-1].hyperparameters == {"margin": 0.5}
