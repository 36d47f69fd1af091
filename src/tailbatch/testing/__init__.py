"""Contract tests to inherit: what every selector, model and loss guarantees, for pytest.

Your test class names your class and inherits the rest::

    from tailbatch.testing import LossContract

    class TestMine(LossContract):
        loss_class = Mine

This is the only room that imports pytest.
"""

import pytest

# Registered before the import, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    "tailbatch.testing.model_contract",
    "tailbatch.testing.selector_contract",
)

from tailbatch.testing.model_contract import LossContract, ModelContract  # noqa: E402
from tailbatch.testing.selector_contract import SelectorContract  # noqa: E402

__all__ = ["LossContract", "ModelContract", "SelectorContract"]
