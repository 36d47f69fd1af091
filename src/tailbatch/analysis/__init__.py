"""Everything that compares runs, computed once: frames in, frames out; needs no torch."""

from tailbatch.errors import require_installed

require_installed("pandas", extra="cli")

from tailbatch.analysis.keys import Arm, Cell, Dataset, Learner
from tailbatch.analysis.tables import Analysis, analyze

__all__ = ["Analysis", "Arm", "Cell", "Dataset", "Learner", "analyze"]
