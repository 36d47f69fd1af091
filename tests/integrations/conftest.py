"""What frameworks keep for a whole process must not pass from one test to the next."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _fresh_accelerate():
    """Forget the precision of an earlier accelerator, which all later ones would share."""
    yield
    if "accelerate" in sys.modules:
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
