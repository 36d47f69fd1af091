"""Recipes of the guide that take too long for every day."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.mark.slow
def test_the_recipe_for_ray_train(tmp_path):
    (recipe,) = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "recipe.py"
    script.write_text(recipe)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
