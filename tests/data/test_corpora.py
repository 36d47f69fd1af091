import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from served_file import CONTENT, serving
from tailbatch.data import catalog, load_dataset, load_texts
from tailbatch.data.catalog import KnownFile
from tailbatch.data.corpora import TextDataset, TextParts
from tailbatch.errors import DataError, DownloadError

PARTS = {
    "train.tsv": 'so happy today\t0\ta1\n"she said ""happy"" twice"\t0,1\ta2\nso sad\t1\ta3\n',
    "dev.tsv": "happy again\t0\tb1\n",
    "test.tsv": "sad and happy\t0,1\tc1\nrain\t1\tc2\n",
    "labels.txt": "joy\ngrief",
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Return a folder with a small corpus under the name of the known one."""
    folder = tmp_path / "goemotions"
    folder.mkdir()
    for name, content in PARTS.items():
        if name == "dev.tsv":
            (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        else:
            (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.setenv("TAILBATCH_DATA", str(tmp_path))
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path / "cache"))
    return folder


def test_texts_and_labels_come_in_their_official_parts(corpus):
    parts = load_texts("goemotions")
    assert parts.train.texts == ("so happy today", 'she said "happy" twice', "so sad")
    assert parts.train.Y.tolist() == [[True, False], [True, True], [False, True]]
    assert parts.validation.texts == ("happy again",)
    assert len(parts.test) == 2
    assert parts.test.label_names == ("joy", "grief")
    assert load_texts(corpus / "train.tsv").test.texts == parts.test.texts


def test_a_folder_of_your_own_is_read_by_its_path(corpus):
    own = corpus.rename(corpus.with_name("mine"))
    parts = load_texts(own)
    assert parts.train.name == "mine"
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (3, 1, 2)
    assert parts.test.label_names == ("joy", "grief")
    (own / "dev.tsv.gz").unlink()
    with pytest.raises(DataError, match=r"mine lacks dev\.tsv; a corpus has the files train\.tsv,"):
        load_texts(own)


def test_words_and_their_weights_are_those_of_the_training_texts(corpus):
    parts = load_texts("goemotions")
    weighted = parts.tfidf(n_features=4)
    reference = TfidfVectorizer(max_features=4).fit(parts.train.texts)
    assert list(weighted.train.feature_names) == list(reference.get_feature_names_out())
    for name in ("train", "validation", "test"):
        expected = reference.transform(getattr(parts, name).texts).toarray()
        part = getattr(weighted, name)
        np.testing.assert_allclose(part.X.toarray(), expected, atol=1e-6)
        assert part.Y.tolist() == getattr(parts, name).Y.tolist()
    assert weighted.test.X[[1]].sum() == 0  # no training text has the word


def test_a_corpus_loads_as_word_counts_that_the_catalog_checks(corpus):
    with pytest.raises(DataError, match="is not goemotions as the catalog knows it: n is 6, not"):
        load_dataset("goemotions")
    with pytest.raises(DataError, match="leave labels= out"):
        load_dataset("goemotions", labels=2)


def test_a_file_of_that_name_elsewhere_is_anyones(corpus):
    mine = corpus.parent / "train.tsv"
    mine.write_text("length\tlong\n1.5\t1\n0.5\t0\n")
    assert catalog.known_file(mine) is None
    assert load_dataset(mine, labels=-1).n_samples == 2
    with pytest.raises(DataError, match=r"train\.tsv has no texts; of the known datasets only"):
        load_texts(mine)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no tabs", "expected a text, label numbers and an id between tabs"),
        ("text\tjoy\ta4", "expected a text, label numbers and an id between tabs"),
        ("text\t0,2\ta4", "labels go from 0 to 1: 0,2"),
    ],
)
def test_a_wrong_line_is_named(corpus, line, reason):
    path = corpus / "train.tsv"
    path.write_text(PARTS["train.tsv"] + line + "\n")
    with pytest.raises(DataError) as caught:
        load_texts("goemotions")
    assert str(caught.value) == f"{path}, line 4: {reason}"


def test_texts_and_labels_must_fit(corpus):
    with pytest.raises(DataError, match="1 texts have 2 rows of labels"):
        TextDataset("two", ("one",), np.eye(2, dtype=bool), ("a", "b"))


def test_a_corpus_that_lacks_a_file_is_not_here(corpus):
    (corpus / "labels.txt").unlink()
    assert catalog.local_file("goemotions") is None
    with pytest.raises(DataError, match=r"goemotions lacks labels\.txt of goemotions; remove"):
        load_texts(corpus / "train.tsv")


def test_all_files_of_a_corpus_are_downloaded_and_compared(tmp_path, monkeypatch):
    monkeypatch.delenv("TAILBATCH_DATA", raising=False)
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path))
    entry = catalog.known("goemotions")
    with serving() as server:

        def served(labels_at):
            digest = hashlib.sha256(CONTENT).hexdigest()
            files = tuple(
                KnownFile(name, len(CONTENT), digest, (f"{server.address}/{place}",))
                for name, place in (("train.tsv", "good"), ("labels.txt", labels_at))
            )
            return {**catalog.catalog(), "goemotions": replace(entry, files=files)}

        broken, whole = served("missing"), served("good")
        monkeypatch.setattr(catalog, "catalog", lambda: broken)
        with pytest.raises(DownloadError, match=r"Put labels\.txt by hand into"):
            catalog.find("goemotions")
        monkeypatch.setattr(catalog, "catalog", lambda: whole)
        path = catalog.find("goemotions")
        assert path == tmp_path / "goemotions" / "train.tsv"
        assert [request for request, _ in server.requests] == ["/good", "/missing", "/good"]
    assert catalog.file_matches(path)
    (path.parent / "labels.txt").write_text("other")
    assert not catalog.file_matches(path)


def test_the_real_corpus_is_as_its_authors_describe_it(benchmark_data, monkeypatch):
    monkeypatch.setenv("TAILBATCH_DATA", str(benchmark_data))
    path = catalog.local_file("goemotions")
    if path is None:
        pytest.skip("goemotions is not in TAILBATCH_DATA")
    assert catalog.file_matches(path)
    parts = load_texts("goemotions")
    assert isinstance(parts, TextParts)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (43410, 5426, 5427)
    counts = dict(zip(parts.train.label_names, parts.train.Y.sum(axis=0).tolist(), strict=True))
    assert (counts["grief"], counts["pride"], counts["neutral"]) == (77, 111, 14219)
    data = load_dataset("goemotions")  # its facts agree
    assert data.is_sparse
    assert parts.tfidf(2000).train.n_features == 2000
