"""Several processes with ``torch.distributed``: the selector that every rank shares.

The package's own `Trainer` uses it too, so it lives in `tailbatch.training`.
"""

from tailbatch.training.distributed import DistributedSelector

__all__ = ["DistributedSelector"]
