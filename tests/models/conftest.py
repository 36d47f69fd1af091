import pytest

from tailbatch.testing.model_contract import toy_dataset


@pytest.fixture(scope="session")
def toy():
    return toy_dataset(40)
