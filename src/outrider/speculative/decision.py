"""The arithmetic of a decision: compiled where numba is installed, else in numpy, with the same results."""

from outrider.speculative.decision_arrays import best_count, observe, share, survival

try:
    # checkers see the names above, whose signatures these share
    from outrider.speculative.decision_kernels import best_count, observe, share, survival
except ImportError:  # numba is optional, and some platforms have none that loads
    pass

__all__ = ["best_count", "observe", "share", "survival"]
