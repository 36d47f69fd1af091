"""Where datasets come from, and what is cached about them."""

import os

import pytest

from study_samples import tiny_file, tiny_study
from tailbatch.errors import StudyError
from tailbatch.study import sources
from tailbatch.study.sources import Source, facts_of, parts_of


def fail(*_):
    raise AssertionError("the file was read again")


def test_facts_are_noted_so_that_the_file_is_read_once(tiny, store, monkeypatch):
    source = Source.of(str(tiny))
    facts = facts_of(source, ["full"], store)
    assert facts.digest == source.load().digest
    assert facts.facts["full"]["n_samples"] == 120
    monkeypatch.setattr(sources, "_loaded", fail)
    assert facts_of(source, ["full"], store) == facts


def test_a_changed_file_is_read_again(tmp_path, store):
    path = tiny_file(tmp_path)
    before = facts_of(Source.of(str(path)), ["full"], store)
    path = tiny_file(tmp_path, n=140)
    sources._loaded.cache_clear()
    after = facts_of(Source.of(str(path)), ["full"], store)
    assert after.digest != before.digest
    assert store.datasets() == {next(iter(store.datasets())): after}


def test_another_preparation_or_choice_of_labels_is_looked_up_again(tiny, store):
    facts_of(Source.of(str(tiny)), ["full"], store)
    both = facts_of(Source.of(str(tiny)), ["full", "paper"], store)
    assert set(both.facts) == {"full", "paper"}
    assert both.facts["paper"]["n_labels"] == 4  # the rare one has 12 positives


def test_a_touched_file_of_the_same_content_keeps_its_digest(tiny, store):
    first = facts_of(Source.of(str(tiny)), ["full"], store)
    os.utime(tiny)
    assert facts_of(Source.of(str(tiny)), ["full"], store).digest == first.digest


def test_folds_do_not_depend_on_seed_or_strategy(tiny):
    study = tiny_study(tiny, seeds=[0, 1])
    source = study.sources[0]
    specs = [s for s in study.specs({"tiny": source.load().digest}) if s.fold == 0]
    assert len({id(parts_of(spec, source)) for spec in specs}) == 1


def test_a_dataset_that_changed_since_planning_is_refused(tiny):
    study = tiny_study(tiny)
    with pytest.raises(StudyError, match="tiny is not the dataset the study was planned with"):
        parts_of(study.specs({"tiny": "ab" * 16})[0], study.sources[0])


def test_labels_of_a_file_are_passed_on(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("x,a,b\n" + "0.5,1,0\n0.1,0,1\n" * 3)
    by_name = Source.of({"path": str(path), "labels": ["a", "b"]})
    assert by_name.load().label_names == ("a", "b")
    assert Source.of({"path": str(path), "labels": -2, "name": "other"}).load().n_labels == 2
    assert (by_name.name, by_name.labels) == ("mine", ("a", "b"))
