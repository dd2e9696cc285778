"""DeepSeek-V4, layer by layer, written against `outrider.ops` and the paged cache.

Reading order: transformer, decoder_layer, hyper_connections, attention, compressor, indexer, experts, then mtp.
Weights come as a mapping from the checkpoint's official tensor names to float32 tensors.
"""
