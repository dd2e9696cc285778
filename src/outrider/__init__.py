"""Outrider: DeepSeek-V4 with multi-token-prediction speculative decoding, lossless, on ROCm, CUDA and CPU.

from outrider import LLM, SamplingParams
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.engine.llm import LLM
    from outrider.sampling.params import SamplingParams

__all__ = ["LLM", "SamplingParams"]


def __getattr__(name: str) -> Any:
    """Loads the names above when they are first used: `import outrider` alone does not wait for torch."""
    if name == "LLM":
        from outrider.engine.llm import LLM

        return LLM
    if name == "SamplingParams":
        from outrider.sampling.params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'outrider' has no attribute {name!r}")
