"""Outrider: DeepSeek-V4 with multi-token-prediction speculative decoding, lossless, on ROCm, CUDA and CPU."""
