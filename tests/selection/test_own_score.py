"""The documented example of a user's own score does what its page says."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_score.py"


def test_the_example_prefers_minority_labels_and_ends_uniform(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shares = [int(line.split("%")[0].split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(shares) == 5
    assert shares[1] > 2 * shares[0]
    assert shares[1] > shares[2] > shares[3] > shares[4]
