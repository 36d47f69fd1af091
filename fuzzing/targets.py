"""What is fuzzed: each target takes any bytes and must return an object or refuse clearly.

A refusal is a `TailbatchError` whose message is one printable line. Everything else (another
exception, an object that cannot be used, a selector changed by a state it refused) is a finding.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fuzzing import datasets, results, states
from fuzzing.mutation import (
    Mutator,
    bytes_mutator,
    json_mutator,
    npz_mutator,
    safetensors_mutator,
    toml_mutator,
)


@dataclass(frozen=True)
class Target:
    """An entry point of the package: how to check some bytes, and how to mutate them."""

    check: Callable[[bytes], None]
    mutate: Mutator


TARGETS: dict[str, Target] = {
    "arff": Target(datasets.check_arff, bytes_mutator(datasets.ARFF_TOKENS)),
    "xml": Target(datasets.check_xml, bytes_mutator(datasets.XML_TOKENS)),
    "libsvm": Target(datasets.check_libsvm, bytes_mutator(datasets.LIBSVM_TOKENS)),
    "csv": Target(datasets.check_csv, bytes_mutator(datasets.CSV_TOKENS)),
    "jsonl": Target(datasets.check_jsonl, bytes_mutator(datasets.JSON_TOKENS)),
    "parquet": Target(datasets.check_parquet, bytes_mutator(datasets.CSV_TOKENS)),
    "npz": Target(datasets.check_npz, npz_mutator()),
    "study": Target(results.check_study, toml_mutator(results.TOML_TOKENS)),
    "record": Target(results.check_record, json_mutator()),
    "selector": Target(states.check_selector, bytes_mutator()),
    "checkpoint": Target(states.check_checkpoint, safetensors_mutator()),
    "model": Target(states.check_model, safetensors_mutator()),
}
