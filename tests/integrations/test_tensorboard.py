from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tailbatch.data import load_dataset, split, stratified_split
from tailbatch.integrations.tensorboard import TensorBoardCallback, scalars
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Trainer


def test_the_curves_and_the_selection_of_a_training(tmp_path):
    data = load_dataset("debtags").take(range(200))
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    selector = make_selector("hard", parts.train.Y, batch_size=32, warm_up_epochs=1)
    callback = TensorBoardCallback(tmp_path, selector)
    plan = TrainingPlan(epochs=2, batch_size=32, warm_up_epochs=1)
    model = make_model("mlp", parts.train, seed=0)
    training = Trainer(plan, callbacks=[callback]).fit(model, parts, selector)

    events = EventAccumulator(str(tmp_path)).Reload()
    expected = scalars(training.epochs[-1], selector.diagnostics())
    assert set(events.Tags()["scalars"]) == set(expected)
    for name in (
        "train/batch_objective",
        "validation/macro_auc",
        "selection/effective_sample_size",
    ):
        values = events.Scalars(name)
        assert [event.step for event in values] == [1, 2]
        assert abs(values[-1].value - expected[name]) < 1e-4 * abs(expected[name])
