"""The study files beside a report do its runs again, and no others."""

import tomllib
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from report.synthetic import make_specs
from study_samples import contents, run_here, tiny_file, tiny_study
from tailbatch.report.page import _grids, _study_files, write_report
from tailbatch.results import NO_BATCHES, DatasetFacts, ResultStore, RunSpec
from tailbatch.study import Study, known_studies, load_study

CELLS = st.lists(st.tuples(*[st.sampled_from("abc")] * 3), max_size=20)


def digests(files, content):
    """Return the digests of the runs that study files mean, where every dataset has one content."""
    found = []
    for text in files.values():
        study = Study.from_dict(tomllib.loads(text))
        names = {source.name: content for source in study.sources}
        # Specs made by hand do not say what was left at its default.
        found += [replace(spec, by_default={}).digest for spec in study.specs(names)]
    return found


@given(CELLS)
def test_grids_stand_for_each_row_once(rows):
    made = []
    for columns in _grids(rows):
        cells = [()]
        for values in columns:
            cells = [(*cell, value) for cell in cells for value in values]
        made += cells
    assert sorted(made) == sorted(set(rows))


def test_a_study_of_the_paper_is_one_file():
    for name in known_studies():
        study = load_study(name)
        specs = study.specs({source.name: "ab" for source in study.sources})
        files = _study_files(specs, {}, name)
        # Models without batches have no strategies, so they are a grid of their own.
        assert len(files) == len({spec.strategy == NO_BATCHES for spec in specs})
        assert sorted(digests(files, "ab")) == sorted(
            replace(spec, by_default={}).digest for spec in specs
        )


def test_runs_that_are_no_grid_are_several_files():
    specs = make_specs(datasets=("scene", "yeast"), random_seeds=2, pressures=(2.0, 16.0))
    specs = [RunSpec.from_dict(spec.to_dict() | {"dataset_digest": "ab"}) for spec in specs][:-5]
    files = _study_files(specs, {}, "odd")
    assert len(files) > 1
    assert sorted(digests(files, "ab")) == sorted(spec.digest for spec in specs)


def test_odd_names_and_annealed_pressures_are_written_as_toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('odd "name"\x7f.csv').write_text("x,a\n")
    spec = RunSpec(
        dataset="odd",
        dataset_digest="ab",
        selection_pressure=(64, 1),
        strategy="adaptive",
        strategy_options={"cap_quantile": 0.9},
        hyperparameters={"hidden": [8]},
    )
    facts = DatasetFacts(
        name="odd",
        path='/far/odd "name"\x7f.csv',
        size=1,
        modified=0,
        digest="ab",
        labels=["a"],
    )
    files = _study_files([spec], {"key": facts}, "odd")
    assert digests(files, "ab") == [spec.digest]
    assert "/far" not in files["odd.toml"]


def test_what_a_report_prints_runs_and_gives_the_same_records(tmp_path, monkeypatch):
    path = tiny_file(tmp_path)
    store = ResultStore(tmp_path / "records")
    run_here(tiny_study(path, strategies=["random", "minority"]), store)
    write_report(store.path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    command = "tailbatch study run report-files/tiny.toml --store again"
    assert command in page
    assert "tiny.npz must be there too" in page
    monkeypatch.chdir(tmp_path)
    again = ResultStore(tmp_path / "again")
    run_here(load_study(command.split()[3]), again)
    assert contents(again) == contents(store)
