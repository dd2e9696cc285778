"""The arithmetic of a decision: compiled where numba is installed, else in numpy, with the same results."""

from contextlib import suppress

from outrider.speculative.decision_arrays import best_count, count_passes, observe, share, survival

with suppress(ImportError):  # numba is optional, and some platforms have none that loads
    # checkers see the names above, whose signatures these share
    from outrider.speculative.decision_kernels import best_count, count_passes, observe, share, survival

__all__ = ["best_count", "count_passes", "observe", "share", "survival"]
