import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from served_file import BROKEN, CONTENT, served_catalog, serving
from tailbatch import files
from tailbatch.data import catalog
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.errors import DataError, DownloadError


@pytest.fixture
def server():
    with serving() as http:
        yield http


@pytest.fixture
def download(server, monkeypatch, tmp_path):
    """Return a function that finds a dataset served at the given paths of the server."""
    monkeypatch.delenv("TAILBATCH_DATA", raising=False)
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path))

    def find(*paths, progress=None):
        served = served_catalog(*(f"{server.address}/{path}" for path in paths))
        monkeypatch.setattr(catalog, "catalog", lambda: served)
        return catalog.find("yeast", progress=progress)

    return find


def left_behind(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_download_lands_in_the_cache_once_and_reports_progress(download, server, tmp_path):
    seen = []
    path = download("good", progress=lambda *now: seen.append(now))
    assert path == tmp_path / "yeast" / "yeast.arff"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [received for received, _ in seen] == sorted(received for received, _ in seen)
    assert download("good") == path
    assert len(server.requests) == 1
    assert left_behind(tmp_path) == ["yeast.arff"]


def test_a_broken_download_goes_on_where_it_stopped(download, server, tmp_path):
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1: the connection broke"):
        download("breaks")
    assert left_behind(tmp_path) == ["yeast.arff.part"]
    assert download("good").read_bytes() == CONTENT
    assert server.requests[-1] == ("/good", f"bytes={BROKEN}-")
    assert left_behind(tmp_path) == ["yeast.arff"]


def test_the_next_mirror_continues_what_the_first_began(download, server):
    assert download("breaks", "good").read_bytes() == CONTENT
    assert server.requests[-1] == ("/good", f"bytes={BROKEN}-")


def test_many_at_once_do_not_disturb_each_other(download, tmp_path):
    with pytest.raises(DownloadError):
        download("breaks")
    with ThreadPoolExecutor(4) as workers:
        paths = list(workers.map(lambda _: download("good"), range(4)))
    assert set(paths) == {tmp_path / "yeast" / "yeast.arff"}
    assert paths[0].read_bytes() == CONTENT
    assert left_behind(tmp_path) == ["yeast.arff"]


def test_what_a_download_killed_at_its_last_step_left_is_removed(download, tmp_path):
    path = download("good")
    left = path.parent / f".tailbatch-{files._this_machine()}-{'a' * 32}"
    left.mkdir()
    (left / files._LOCK).touch()
    assert download("good") == path
    assert left_behind(tmp_path) == ["yeast.arff"]
    assert not left.exists()


def test_a_server_without_ranges_sends_everything_again(download):
    with pytest.raises(DownloadError):
        download("breaks")
    assert download("plain").read_bytes() == CONTENT


def test_a_part_that_is_whole_needs_no_request(download, server, tmp_path):
    (tmp_path / "yeast").mkdir()
    (tmp_path / "yeast" / "yeast.arff.part").write_bytes(CONTENT)
    assert download("good").read_bytes() == CONTENT
    assert server.requests == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("other", "it serves another SHA-256"),
        ("endless", f"it sends more than the known {len(CONTENT)} bytes"),
        ("short", f"it sends 16 bytes, not the known {len(CONTENT)}"),
        ("missing", "HTTP 404"),
        ("exhausted", "its file is shorter than the known one"),
    ],
)
def test_what_is_not_the_known_file_is_refused_and_removed(download, tmp_path, path, reason):
    with pytest.raises(DownloadError) as caught:
        download(path)
    assert f"127.0.0.1: {reason}" in str(caught.value)
    assert left_behind(tmp_path) == []


def test_a_bad_mirror_is_passed_over(download, server):
    assert download("missing", "other", "good").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing", "/other", "/good"]


def test_garbage_in_the_part_is_thrown_away(download, tmp_path):
    (tmp_path / "yeast").mkdir()
    (tmp_path / "yeast" / "yeast.arff.part").write_bytes(b"garbage")
    with pytest.raises(DownloadError, match="another SHA-256"):
        download("good")
    assert download("good").read_bytes() == CONTENT


def test_an_interrupt_keeps_what_arrived(download, tmp_path):
    def interrupt(received, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download("good", progress=interrupt)
    assert left_behind(tmp_path) == ["yeast.arff.part"]
    assert download("good").read_bytes() == CONTENT


def test_offline_the_error_says_where_to_put_the_file(download, server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError) as caught:
        download("good")
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert str(caught.value) == (
        "yeast could not be downloaded (127.0.0.1: no connection). "
        f"Put yeast.arff by hand into {tmp_path / 'yeast'}, or into a folder that TAILBATCH_DATA "
        f"names; its SHA-256 is {digest}"
    )
    assert left_behind(tmp_path) == []


def test_a_file_nobody_serves_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("TAILBATCH_DATA", raising=False)
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path))
    with pytest.raises(DownloadError, match=r"\(no known source\)\. Put tmc2007-labels\.arff"):
        catalog.find("tmc2007-labels")


def test_a_cache_that_cannot_be_written_is_named(download, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"cannot be stored in .*set TAILBATCH_CACHE"):
        download("good")


def test_the_named_folder_is_looked_at_first(download, server, monkeypatch, tmp_path):
    folder = tmp_path / "mine"
    (folder / "yeast").mkdir(parents=True)
    monkeypatch.setenv("TAILBATCH_DATA", str(folder))
    packed = folder / "yeast" / "yeast.arff.gz"
    packed.write_bytes(gzip.compress(b"mine"))
    assert download("good") == packed
    packed.replace(folder / "yeast.arff.gz")
    assert download("good") == folder / "yeast.arff.gz"
    assert server.requests == []


def test_a_named_folder_that_is_none_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("TAILBATCH_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"TAILBATCH_DATA names .*gone, which is not a folder"):
        catalog.find("yeast")


def test_every_entry_is_complete():
    for entry in catalog.catalog().values():
        assert entry.citation
        assert entry.domain
        assert entry.label_density == pytest.approx(
            entry.label_cardinality / entry.n_labels, abs=6e-5
        )
        for file in entry.files:
            assert len(file.sha256) == 64
            assert all(url.startswith("https://") for url in file.urls)
            if not entry.is_corpus:
                assert file.name.endswith(".npz") or abs(file.labels) == entry.n_labels
                assert catalog.known_file(Path(file.name)) == (entry, file)
        if entry.paper_features:
            assert entry.paper_features < entry.n_features


def test_the_papers_thirteen_datasets_can_be_downloaded():
    paper = [
        *("corel5k", "rcv1subset1", "rcv1subset2", "rcv1subset3", "yahoo-arts", "cal500"),
        *("yahoo-business", "tmc2007", "bibtex", "enron", "yeast", "llog-f", "scene"),
    ]
    for name in [*paper, "emotions"]:
        assert len(catalog.known(name).files[0].urls) >= 2


def dataset(n=2417, d=103, q=14, cardinality=4.2371, name="yeast"):
    Y = np.zeros((n, q), dtype=bool)
    Y.ravel()[: round(n * cardinality)] = True
    return MultiLabelDataset.from_arrays(np.zeros((n, d)), Y, name=name)


def test_facts_that_agree_pass():
    catalog.check(dataset(), "yeast")


def test_facts_that_disagree_are_all_named_with_the_way_out():
    with pytest.raises(DataError) as caught:
        catalog.check(dataset(d=104, q=13, cardinality=3.0), "yeast")
    assert str(caught.value) == (
        "this is not yeast as the catalog knows it: d is 104, not 103; q is 13, not 14; "
        "cardinality is 3.0, not 4.2371. Read it with labels=-14 for yeast.arff; "
        "if it is another dataset, give its file another name"
    )


def test_labels_from_the_wrong_end_of_llog_f_are_caught():
    wrong = dataset(n=1460, d=1004, q=75, cardinality=15.9356)
    with pytest.raises(DataError, match=r"cardinality is 15\.9356, not 1\.1801\. .*labels=75 for"):
        catalog.check(wrong, "llog-f")


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(DataError, match="did you mean 'tmc2007"):
        catalog.known("tmc-2007")
    with pytest.raises(DataError, match=r"unknown dataset 'zzz'\. Known: debtags, "):
        catalog.known("zzz")


def test_a_file_is_compared_by_its_uncompressed_bytes(download, monkeypatch, tmp_path):
    path = download("good")
    assert catalog.file_matches(path)
    packed = tmp_path / "yeast.arff.gz"
    packed.write_bytes(gzip.compress(CONTENT))
    assert catalog.file_matches(packed)
    packed.write_bytes(gzip.compress(CONTENT)[:-100])
    with pytest.raises(DataError, match=r"yeast\.arff\.gz cannot be read"):
        catalog.file_matches(packed)
    path.write_bytes(b"changed")
    assert not catalog.file_matches(path)
    with pytest.raises(DataError, match="is not a file the catalog knows"):
        catalog.file_matches(tmp_path / "mine.arff")


def test_the_benchmark_files_have_the_known_bytes(benchmark_data):
    files = [path for path in benchmark_data.rglob("*.arff.gz") if catalog.known_file(path)]
    assert len(files) == 17
    assert all(catalog.file_matches(path) for path in files)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "/home/ada/.cache/tailbatch"),
        ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/tailbatch"),
        ("linux", {"XDG_CACHE_HOME": "fast"}, "/home/ada/.cache/tailbatch"),
        ("darwin", {"XDG_CACHE_HOME": "/fast"}, "/home/ada/Library/Caches/tailbatch"),
        ("win32", {}, "/home/ada/AppData/Local/tailbatch"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tailbatch"),
        ("win32", {"LOCALAPPDATA": "/local", "TAILBATCH_CACHE": "/mine"}, "/mine"),
    ],
)
def test_downloads_go_where_the_system_keeps_caches(platform, variables, expected, monkeypatch):
    for name in ("TAILBATCH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ada", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform=platform))
    assert files.cache_folder() == Path(expected)
