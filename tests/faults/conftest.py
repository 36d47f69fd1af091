import pytest

from faults.commands import undisturbed
from served_file import serving


@pytest.fixture(scope="session")
def server():
    with serving() as http:
        yield http


@pytest.fixture(scope="session")
def whole(server, tmp_path_factory):
    """Return the result, the duration and the writes of an undisturbed command."""
    known = {}

    def look_up(command):
        if command not in known:
            known[command] = undisturbed(command, tmp_path_factory.mktemp("whole"), server.address)
        return known[command]

    return look_up
