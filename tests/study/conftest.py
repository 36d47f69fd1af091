import pytest

from study_samples import tiny_file
from tailbatch.results import ResultStore


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The file of a dataset that trains very quickly."""
    return tiny_file(tmp_path_factory.mktemp("data"))


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")
