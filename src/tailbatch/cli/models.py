"""The command ``tailbatch fit``, and how commands read rows for a model.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

import shlex
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch import defaults
from tailbatch.cli.options import (
    Add,
    Data,
    EncoderOption,
    Kinds,
    Labels,
    MinRows,
    Missing,
    MissingOption,
    Text,
    _as_option,
    _label_option,
    _load_for_command,
    _named_table,
    _named_value,
    _note,
)
from tailbatch.errors import (
    DataError,
    ModelError,
    TrainingInterrupted,
    closest,
    setting,
    spelled,
)

if TYPE_CHECKING:
    import pandas as pd

    from tailbatch.data import Columns, MultiLabelDataset
    from tailbatch.estimator import TailbatchClassifier

commands = typer.Typer()

Folder = Annotated[Path, typer.Argument(help="The folder that `tailbatch fit` wrote.")]


@commands.command("fit")
def _fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="The folder for the trained model.")],
    labels: Labels = None,
    missing: MissingOption = Missing.IMPUTE,
    text: Text = None,
    kinds: Kinds = None,
    encoder: EncoderOption = None,
    finetune: Annotated[
        bool,
        typer.Option("--finetune", help="Train the encoder of text, too: minilm or --encoder."),
    ] = False,
    label_texts: Annotated[
        str | None,
        typer.Option(help="names: with --finetune, start from what the labels' names mean."),
    ] = None,
    min_rows: MinRows = None,
    add: Add = None,
    model: Annotated[
        str, typer.Option(help="ensemble, mlp, c2ae, mpvae, paca, clif or dela.", show_default=True)
    ] = defaults.MODEL,
    strategy: Annotated[
        str,
        typer.Option(
            help="random, importance, uniform, balanced, hard, adaptive, chain, minority or another "
            "strategy from the documentation."
        ),
    ] = defaults.STRATEGY,
    selection_pressure: Annotated[
        str | None,
        typer.Option(
            help="Selection pressure, 1 or more; imbalance: MeanIR; auto: the best of 2, 8, 16, 64."
            " By default the strategy's own."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Training loss: bce, weighted_bce, focal, asymmetric, class_balanced, "
            "distribution_balanced, two_way or equalized; options follow a colon: weighted_bce:power=1."
            " By default the model's own."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data; the default depends on the model.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per batch; the default depends on the model.")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate; the default depends on the model.")
    ] = None,
    warm_up_epochs: Annotated[
        int | None,
        typer.Option(
            help="Plain shuffled epochs at the start; the default depends on the model, at most a tenth."
        ),
    ] = None,
    cross_fit: Annotated[
        int | None,
        typer.Option(
            help="Parts of the rows, each held out from some members; 0: none. By default 5 for ensemble."
        ),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows to split off instead; by default a tenth without parts."
        ),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option(
            help="Probability above which a label is predicted; or tuned on held-out rows."
        ),
    ] = "tuned",
    objective: Annotated[
        str,
        typer.Option(help="What thresholds are tuned for: f1, 'precision>=0.9' or 'recall>=0.8'."),
    ] = "f1",
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that training may take.")
    ] = None,
    random_state: Annotated[
        int, typer.Option("--seed", help="The same seed gives the same model.")
    ] = defaults.SEED,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A nested setting, such as model__latent=64 or plan__early_stopping=10.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume training that Ctrl-C stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model in the folder.")
    ] = False,
) -> None:
    """Train a classifier on a dataset and save it to a folder.

    Ctrl-C saves a checkpoint and stops; the same command with --resume continues from it.

    For example:

      tailbatch fit debtags --out model

      tailbatch fit yeast --model dela --strategy adaptive --out model --lr 0.001

      tailbatch fit mine.csv --labels tags --text subject --out model --objective 'recall>=0.8'

      tailbatch fit mine.csv --labels tags --text subject --out model --encoder minilm --finetune

      tailbatch fit debtags --out model --strategy random --loss weighted_bce

      tailbatch fit train.csv --add review.csv --out model2

      torchrun --nproc-per-node 2 -m tailbatch fit debtags --out model
    """
    from tailbatch.cli.display import _training_bar
    from tailbatch.cli.review import _reviewed_in_words, _reviewed_rows, _used_columns
    from tailbatch.data.preparation import with_enough_positives
    from tailbatch.data.tables import no_features
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.models import MODELS
    from tailbatch.models.base import check_size
    from tailbatch.results import TrainingPlan
    from tailbatch.training.ranks import process_group

    pressure = _pressure(selection_pressure)
    nested = _nested(settings or [])
    budget = {name: nested.get(f"plan__{name}") for name in ("steps", "min_steps", "max_steps")}
    suited = defaults.FINETUNED if finetune else model
    plan = TrainingPlan.suited_to(suited, epochs=epochs, batch_size=batch_size, **budget)
    with process_group() as ranks:
        writes = ranks.rank == 0  # output and files are the same on every rank
        if writes:
            _refuse_loss(out, resume=resume, overwrite=overwrite, tries=pressure == "auto")
        ranks.meet()
        # An encoder that is trained makes its own of the text, once the rows are dealt.
        frozen = None if finetune else encoder
        dataset = _load_for_command(data, labels, missing, text, kinds, frozen)
        if min_rows is not None:
            dataset = with_enough_positives(dataset, min_rows)
        _note(*(dataset.notices if writes else ()))
        if dataset.n_samples < 2:
            raise DataError(f"{data} has 1 row, but training needs at least 2: add rows")
        if not dataset.n_features:
            raise no_features(dataset)
        # Before anything is made that grows with the claimed size: names, a frame, folds.
        own = {k.removeprefix("model__"): v for k, v in nested.items() if k.startswith("model__")}
        check_size(MODELS[model], dataset.n_features, dataset.n_labels, own)
        classifier = TailbatchClassifier(
            model=model,
            strategy=strategy,
            selection_pressure=pressure,
            loss=loss and _named_table(loss),
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            warm_up_epochs=warm_up_epochs,
            cross_fit=cross_fit,
            validation_fraction=validation_fraction,
            thresholds=None if thresholds == "tuned" else _number_or_word(thresholds),
            objective=objective,
            time_limit=time_limit,
            label_names=tuple(dataset.label_names),
            columns=_columns(dataset, used_only=bool(add)),
            encoder=encoder,
            finetune=finetune,
            label_texts=label_texts,
            device=device,
            random_state=random_state,
            checkpoint_folder=out,
            **nested,
        )
        features = _frame_of(dataset) if dataset.frame is None else dataset.frame
        if add:
            features = features[_used_columns(dataset, features)]
        reviewed = _reviewed_rows(add, features, dataset.label_names) if add else {}
        _note(*([_reviewed_in_words(reviewed)] if reviewed and writes else []))
        try:
            with _training_bar(plan, shown=writes) as callback:
                classifier.set_params(callbacks=(callback,)).fit(features, dataset.Y, **reviewed)
        except TrainingInterrupted as stopped:
            again = shlex.join(["tailbatch", *(a for a in sys.argv[1:] if a != "--resume")])
            if writes:
                typer.echo(f"\n{stopped}\nTo resume: {again} --resume", err=True)
            raise typer.Exit(128 + signal.Signals[stopped.signal_name]) from None
    if writes:
        classifier.save(out)
        for leftover in _checkpoints(out):
            leftover.unlink()
        _summarize(classifier, out)


def _refuse_loss(out: Path, *, resume: bool, overwrite: bool, tries: bool) -> None:
    """Raise if training would replace something without --overwrite."""
    if out.is_file():
        raise ModelError(f"--out {out} is a file; name a folder")
    unfinished, finished = _checkpoints(out), list(out.glob("classifier.safetensors"))
    if resume and not unfinished:
        raise ModelError(f"{out} holds no unfinished training: remove --resume")
    if resume and tries == (out / "training.safetensors").exists():
        begun, asked = ("without", "with") if tries else ("with", "without")
        raise ModelError(
            f"the training in {out} was started {begun} --selection-pressure auto, this command is "
            f"{asked} it: resume with the original pressure, or choose another folder"
        )
    if overwrite and not resume:
        for path in unfinished:
            path.unlink()
    elif unfinished and not resume:
        raise ModelError(
            f"{out} holds unfinished training: add --resume to continue it, or --overwrite"
        )
    elif finished and not resume:
        raise ModelError(f"{out} holds a trained model: choose another folder, or add --overwrite")


def _checkpoints(out: Path) -> list[Path]:
    return sorted(out.glob("training*.safetensors"))


def _number_or_word(text: str | None) -> Any:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _pressure(text: str | None) -> Any:
    """Read --selection-pressure: a number, or one of two words."""
    value = _number_or_word(text)
    if isinstance(value, str) and value not in ("imbalance", "auto"):
        raise ModelError(
            f"--selection-pressure must be a number from 1, imbalance or auto, got {value!r:.40}"
        )
    return value


def _nested(settings: list[str]) -> dict[str, Any]:
    """Read settings such as model__latent=64."""
    from tailbatch.estimator import TailbatchClassifier

    for entry in settings:
        if not entry.startswith(("model__", "loss__", "strategy__", "plan__")):
            name, _, value = entry.partition("=")
            known = TailbatchClassifier().get_params()
            near = name if name in known else closest(name, known)
            option = setting(near, value) if near else ""
            guess = f"write {option}; " if option.startswith("--") else ""
            raise ModelError(
                f"--set {entry}: {guess}a nested setting begins with model__, loss__, strategy__ or "
                "plan__"
            )
    return dict(map(_named_value, settings))


def _columns(dataset: "MultiLabelDataset", *, used_only: bool = False) -> "Columns | None":
    """Return how to read the columns of a table, without those that are already left out."""
    from dataclasses import replace

    if dataset.columns is None:
        return None
    asked = dataset.columns.columns
    names: Collection[str] = dataset.feature_names
    if dataset.frame is not None:
        if not used_only:
            return asked
        from tailbatch.cli.review import _used_columns

        names = _used_columns(dataset, dataset.frame)
    kinds = {name: kind for name, kind in asked.kinds.items() if name in names}
    return replace(asked, kinds=kinds)


def _frame_of(dataset: "MultiLabelDataset") -> "pd.DataFrame":
    """Return the features with their names, so that the classifier remembers them."""
    import pandas as pd

    names = list(dataset.feature_names)
    if dataset.is_sparse:
        return pd.DataFrame.sparse.from_spmatrix(dataset.X, columns=names)
    return pd.DataFrame(dataset.X, columns=names)


def _rows_of(
    data: str,
    labels: str | None,
    classifier: "TailbatchClassifier",
    *,
    labeled: bool = False,
    as_text: Sequence[str] = (),
) -> "tuple[Any, Any, pd.DataFrame | None]":
    """Return the features of a file, its labels in the model's order if asked for, and its table.

    Other columns that are copied are read `as_text`: an identifier such as 007 stays one.
    """
    from tailbatch.data.tables import EmptyTableError
    from tailbatch.data.text import is_table
    from tailbatch.estimator.inputs import aligned, columns_of, labels_for, read_for

    columns = columns_of(classifier.columns_, getattr(classifier, "feature_names_in_", None))
    names = classifier.label_names_ if labeled else ()
    if not columns.feature_names:
        raise ModelError(
            "the model was fitted on an array, which has no names to find columns by: fit it on a data "
            "frame or a file, or predict in Python"
        )
    if not Path(data).is_file() or not is_table(data):
        dataset = aligned(_load_for_command(data, labels), columns.feature_names, names)
        features = _frame_of(dataset) if classifier.columns_ is None else dataset.X
        return features, dataset.Y, None
    try:
        frame, notices = read_for(columns, Path(data), as_text)
    except EmptyTableError:
        raise DataError(f"{data} has no rows to predict") from None
    with _advice_of_fit(data):
        features, more = columns.transform(frame)
    _note(*notices, *more)
    if classifier.columns_ is None:
        import pandas as pd

        features = pd.DataFrame(features, columns=list(columns.feature_names))
    if not labeled:
        return features, None, frame
    try:
        Y, notices = labels_for(frame, columns, names, _label_option(labels))
    except DataError as error:
        raise DataError(f"{data}: {error}") from None
    _note(*notices)
    return features, Y, frame


@contextmanager
def _advice_of_fit(data: str) -> Iterator[None]:
    """Name a file in errors about its columns, for commands that read them as `fit` was told to."""
    asked = []

    def option_of_fit(name: str, value: Any) -> str | None:
        option = _as_option({"kinds": "--kinds", "missing": "--missing"}, name, value)
        asked.extend([option] if option else [])
        return option

    with spelled(option_of_fit):
        try:
            yield
        except DataError as error:
            problem, _, advice = str(error).partition("; ")
            if options := [option for option in asked if option in advice]:
                again = " or ".join(options)
                problem = f"{problem}; correct it, or fit the model again with {again}"
            raise DataError(f"{data}: {problem if options else error}") from None


def _kept_columns(
    frame: "pd.DataFrame | None", names: list[str] | None, data: str
) -> "pd.DataFrame":
    """Return the columns of a table to copy next to the predictions."""
    import pandas as pd

    from tailbatch.data.cells import columns_text

    if not names:
        return pd.DataFrame()
    if frame is None:
        raise DataError(f"--keep {names[0]} needs a table with columns, and {data} is not one")
    known = [str(column) for column in frame.columns]
    for name in names:
        if name not in known:
            raise DataError(f"--keep {name}: {data} has no such column{columns_text(known, name)}")
    return frame[names].reset_index(drop=True)


def _write_table(table: "pd.DataFrame", out: Path, suffix: str = "") -> None:
    """Write a table as CSV or Parquet by the suffix, replacing the file atomically."""
    from tailbatch.files import replacing
    from tailbatch.report.page import csv_text

    with replacing(out) as temporary:
        if (suffix or out.suffix) == ".parquet":
            table.to_parquet(temporary)
        else:
            temporary.write_text(csv_text(table), encoding="utf-8")


def _summarize(classifier: "TailbatchClassifier", out: Path) -> None:
    from tailbatch.cli.display import _scores_text
    from tailbatch.estimator.decisions import decision_said

    best = classifier.history_[classifier.best_epoch_ - 1]
    scores = "".join(f", {text}" for text in _scores_text(best))
    typer.echo(f"Best epoch {best.number} of {len(classifier.history_)}{scores}")
    if classifier.selection_pressure == "auto":
        typer.echo(f"Selection pressure {classifier.selection_pressure_:g} was best")
    said = decision_said(classifier.facts_, classifier.thresholds_, is_binary=False)
    typer.echo(said[0].upper() + said[1:])
    folder = shlex.quote(str(out))
    typer.echo(f"The model and its card are in {folder}.")
    typer.echo(f"Next: tailbatch predict {folder} DATA --out labels.csv")
