"""Processes forked from one that has imported everything, so that each starts immediately.

Python has one such process for a whole test session, hence one place to say what it imports. These
are modules of the package: where the tests lie, it does not know.
"""

import multiprocessing
import resource

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    [
        "requests",
        "tailbatch.cli.study_display",
        "tailbatch.estimator",
        "tailbatch.report.page",
        "tailbatch.study",
        "torch._dynamo",  # optimizers import it when the first is made
    ]
)


def limit_memory():
    """Limit this process to 8 GB of address space, several of which torch reserves."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
