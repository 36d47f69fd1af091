"""Runs functions in processes of their own: as ranks of a gloo group, or to be killed."""

import multiprocessing
import os
import signal
import socket
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from patience import HUNG

# Processes fork from a server that has imported everything once: seconds less for each.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["tailbatch.training", "tailbatch.integrations.lightning", "tailbatch.integrations.huggingface"]
)


def run_ranks(function, n_ranks, *arguments):
    """Return what `function(rank, *arguments)` returned on each rank, or the exception it raised.

    A rank that was killed gives None.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(n_ranks):
        here, there = _context.Pipe(duplex=False)
        process = _context.Process(
            target=_run, args=(function, rank, n_ranks, port, there, arguments)
        )
        process.start()
        there.close()
        ranks.append((process, here))
    results = [_receive(connection) for _, connection in ranks]
    for process, _ in ranks:
        process.join()
    return results


def run_killed(function, *arguments):
    """Run a function that kills its own process."""
    process = _context.Process(target=_run_alone, args=(function, arguments))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)


def _receive(connection):
    try:
        return connection.recv()
    except EOFError:
        return None


def _run_alone(function, arguments):
    torch.set_num_threads(1)
    # Loader workers must not start a server of their own.
    multiprocessing.set_start_method("fork", force=True)
    function(*arguments)


def _run(function, rank, n_ranks, port, connection, arguments):
    # What torchrun sets, so that the frameworks find themselves at home.
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(n_ranks),
        "LOCAL_WORLD_SIZE": str(n_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "tests",
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=HUNG))
    try:
        result = function(rank, *arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())
        result = error
    connection.send(result)
    connection.close()
    # Left without a goodbye: a rank that failed must not wait for the others.
    os._exit(0)
