"""FSDP over two gloo ranks: sharded weights follow a selector as whole ones do."""

import numpy as np

from integrations.distributed_work import train_sharded
from integrations.ranks import run_ranks


def test_sharded_ranks_reach_the_weights_of_one_process():
    alone = train_sharded(0)
    ranks = run_ranks(train_sharded, 2)
    for found in ranks:
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)
    assert all((ranks[0][name] == ranks[1][name]).all() for name in alone)
