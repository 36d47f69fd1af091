"""What timm gives for a few batches: ``python tests/losses/timm_values.py`` writes them anew.

timm 1.0.31 wrote the values beside this file. It is not among the test packages, because it brings
torchvision, whose wheels on the package index do not fit every build of torch.
"""

import json
from pathlib import Path

import torch

VALUES = Path(__file__).with_name("timm_values.json")
COUNTS = [900, 40, 7, 1, 0]
N_SAMPLES = 1000


def batch(seed, positives=0.3):
    """Logits and labels, some rows without any."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(6, len(COUNTS), generator=generator)
    return logits, (torch.rand(6, len(COUNTS), generator=generator) < positives).float()


def losses_of_timm():
    from timm import loss

    counts = torch.tensor(COUNTS, dtype=torch.float32)
    balanced = {"class_counts": counts, "num_samples": N_SAMPLES, "reduction": "none"}
    return {
        "asymmetric": loss.AsymmetricLossMultiLabel(gamma_pos=0, reduction="none"),
        "asymmetric_1": loss.AsymmetricLossMultiLabel(
            gamma_neg=2, gamma_pos=1, clip=0.1, reduction="none"
        ),
        "distribution_balanced": loss.DistributionBalancedLoss(focal_gamma=0, **balanced),
        "distribution_balanced_2": loss.DistributionBalancedLoss(
            focal_gamma=2, focal_balance=1, **balanced
        ),
        "two_way": loss.TwoWayLoss(),
    }


def values_of_timm():
    from timm.loss import compute_class_weights

    values = {
        name: [made(*batch(seed)).tolist() for seed in range(3)]
        for name, made in losses_of_timm().items()
    }
    _, weights = compute_class_weights(COUNTS, N_SAMPLES, "effective_num", beta=0.999)
    _, ratios = compute_class_weights(COUNTS, N_SAMPLES, "neg_pos", power=0.5, max_weight=20.0)
    return values | {"class_balanced": weights.tolist(), "weighted_bce": ratios.tolist()}


if __name__ == "__main__":
    VALUES.write_text(json.dumps(values_of_timm(), indent=1) + "\n")
