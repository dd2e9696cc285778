"""What an engine takes in memory, computed from config.json and the tensor table before any weight is read.

    weights + caches * (window pages + entry pages) + workspace + graphs <= gpu_memory_utilization * available memory

Weights and cache are exact; the workspace of a step is an upper bound. The pools get as many pages as fit, up to what
max_num_seqs requests of max_model_len can use. Sizes here are the CPU's: caches in float32, whatever the rounding;
those of a GPU are in `device_memory`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from outrider import ops
from outrider.cache.layout import BLOCK_TOKENS, cache_layout
from outrider.checkpoint.names import Part, TensorSpec
from outrider.config import ConfigError, EngineConfig, ModelConfig
from outrider.engine.workspace import workspace_bytes

COMPRESSION_REACH = 4  # tokens before the open 1:4 window that its entry pools too
DEFAULT_UTILIZATION = 0.9
SHORT_CONTEXT = 4096
_HALF, _FLOAT, _INTEGER = 2, 4, 8


@dataclass(frozen=True)
class CacheCost:
    """One kind of row. Entry rows stay for the whole context; window rows for the pages that a request still reads."""

    kind: str  # "window", "partial group", "drafter", "compressed", "indexer"
    in_window_pages: bool
    page_bytes: int  # of a page, BLOCK_TOKENS tokens

    @property
    def bytes_per_token(self) -> float:
        return self.page_bytes / BLOCK_TOKENS


@dataclass(frozen=True)
class MemoryPlan:
    """All sizes in bytes. `budget` and `available` are None where the system does not say what it has."""

    weights: int  # of the trunk
    drafter_weights: int
    cache: tuple[CacheCost, ...]
    workspace: int
    window_pages: int  # of each cache, null pages included
    entry_pages: int
    caches: int  # engines that share the weights
    context: int  # tokens of the longest request
    available: int | None
    budget: int | None
    utilization: float
    graphs: int = 0  # captured on a GPU

    @property
    def window_page_bytes(self) -> int:
        return sum(cost.page_bytes for cost in self.cache if cost.in_window_pages)

    @property
    def entry_page_bytes(self) -> int:
        return sum(cost.page_bytes for cost in self.cache if not cost.in_window_pages)

    @property
    def cache_bytes(self) -> int:
        """Of all caches."""
        own = self.window_pages * self.window_page_bytes + self.entry_pages * self.entry_page_bytes
        return self.caches * own

    @property
    def context_tokens(self) -> int:
        """Tokens whose compressed entries one cache can hold: of all requests together, kept prefixes included."""
        return (self.entry_pages - 1) * BLOCK_TOKENS

    @property
    def total(self) -> int:
        return self.weights + self.drafter_weights + self.cache_bytes + self.workspace + self.graphs

    @property
    def fits(self) -> bool:
        return self.budget is None or self.total <= self.budget

    def resolved(self, options: EngineConfig) -> EngineConfig:
        """The options with the sizes of the pools filled in."""
        return options.model_copy(update={"window_pages": self.window_pages, "entry_pages": self.entry_pages})

    def describe(self) -> str:
        """One line: every size, and what they add up to."""
        drafter = f", drafter {size_text(self.drafter_weights)}" if self.drafter_weights else ""
        times = f"{self.caches} caches, together" if self.caches > 1 else "cache"
        graphs = f", graphs {size_text(self.graphs)}" if self.graphs else ""
        of = "" if self.budget is None else f", of {size_text(self.budget)}"
        return (
            f"weights {size_text(self.weights)}{drafter}, {times} {size_text(self.cache_bytes)} (room for "
            f"{self.context_tokens:,} tokens), workspace of a step up to {size_text(self.workspace)}{graphs}; "
            f"{size_text(self.total)} in all{of}"
        )

    def require_fit(self, source: str) -> None:
        """Raises ConfigError, with the numbers and what to lower, unless `fits`. `source`: what is to be loaded."""
        if not self.fits:
            assert self.budget is not None and self.available is not None
            raise ConfigError(
                f"{source}: does not fit into memory: {self.describe()} (gpu_memory_utilization {self.utilization:g} "
                f"of {size_text(self.available)} available). {self._remedy(self.budget)}"
            )

    def _remedy(self, budget: int) -> str:
        raising = ", or raise gpu_memory_utilization" if self.utilization < 1 else ""
        if self.weights > budget:
            return f"The weights alone are too large: take a smaller model, or a larger machine{raising}"
        if self.weights + self.drafter_weights > budget:
            return f"The weights fit only without speculation: leave it off{raising}"
        needs = sorted([(self.cache_bytes, "max_model_len"), (self.workspace, "max_num_batched_tokens")], reverse=True)
        return f"Lower {needs[0][1]}, or {needs[1][1]}{raising}"


def plan_memory(
    config: ModelConfig,
    specs: Iterable[TensorSpec],
    options: EngineConfig,
    *,
    depth: int,
    available: int | None,
    caches: int = 1,
) -> MemoryPlan:
    """The plan of an engine that drafts up to `depth` tokens (0: no drafter is loaded).

    specs: the checkpoint's table, scales included. available: bytes that may be taken, None if unknown. caches: how
    many engines will share the weights. When not even one request of the longest context fits, the plan says so
    (`fits`), with the sizes that it would take. Raises ConfigError for limits that contradict each other.
    """
    context = options.context_of(config)
    weights = {True: 0, False: 0}
    compiled = ops.backends()["Linear"] == "native"
    table = {spec.name: spec for spec in specs}
    for spec in table.values():
        if not spec.is_scale and spec.part is not Part.DSPARK:
            scale_dtype = table[spec.scale].dtype if spec.scale else None
            size = _resident_bytes(spec, compiled=compiled, scale_dtype=scale_dtype)
            weights[spec.part is Part.MTP] += size
    utilization = DEFAULT_UTILIZATION if options.gpu_memory_utilization is None else options.gpu_memory_utilization
    plan = MemoryPlan(
        weights=weights[False],
        drafter_weights=weights[True] if depth else 0,
        cache=cache_costs(config, with_drafter=depth > 0),
        workspace=workspace_bytes(config, context, depth, options),
        window_pages=0,
        entry_pages=0,
        caches=caches,
        context=context,
        available=available,
        budget=None if available is None else int(utilization * available),
        utilization=utilization,
    )
    return with_pages(plan, config.sliding_window, depth, options)


def with_pages(plan: MemoryPlan, sliding_window: int, depth: int, options: EngineConfig) -> MemoryPlan:
    """The plan with pages between the least and the most that are of use; the two pools grow alike."""
    most = page_counts(sliding_window, plan.context, depth, options)
    least = least_page_counts(sliding_window, plan.context, depth, options)
    low_w, low_e = options.window_pages or least[0], options.entry_pages or least[1]
    high_w, high_e = most
    window, entry = plan.window_page_bytes, plan.entry_page_bytes
    if plan.budget is None:
        return _sized(plan, high_w, high_e)
    room = (plan.budget - plan.weights - plan.drafter_weights - plan.workspace - plan.graphs) // plan.caches
    lowest, highest = low_w * window + low_e * entry, high_w * window + high_e * entry
    if room >= highest:
        return _sized(plan, high_w, high_e)
    if room < lowest:
        return _sized(plan, low_w, low_e)
    pages = low_w + (high_w - low_w) * (room - lowest) // (highest - lowest)
    return _sized(plan, pages, min(high_e, (room - pages * window) // entry) if entry else high_e)


def _sized(plan: MemoryPlan, window_pages: int, entry_pages: int) -> MemoryPlan:
    return replace(plan, window_pages=window_pages, entry_pages=entry_pages)


def cache_costs(config: ModelConfig, *, with_drafter: bool) -> tuple[CacheCost, ...]:
    """Every kind of row that a cache of this model holds (see `cache.layout`), in float32."""
    layouts = cache_layout(config, with_drafter=with_drafter)
    trunk = layouts[: config.num_hidden_layers]
    drafter = layouts[config.num_hidden_layers :]
    kinds = [
        ("window", True, BLOCK_TOKENS * sum(layer.window_width for layer in trunk)),
        ("partial group", True, BLOCK_TOKENS * sum(row.partial_width + row.index_partial_width for row in trunk)),
        # its rows, and the streams of the page's last token
        ("drafter", True, sum(row.window_page_elements + config.hc_mult * config.hidden_size for row in drafter)),
        ("compressed", False, sum(layer.entries_per_block * layer.entry_width for layer in trunk)),
        ("indexer", False, sum(layer.entries_per_block * layer.index_width for layer in trunk)),
    ]
    return tuple(CacheCost(name, window, _FLOAT * elements) for name, window, elements in kinds if elements)


def _resident_bytes(spec: TensorSpec, *, compiled: bool, scale_dtype: str | None) -> int:
    """Bytes of a tensor once it is loaded: float32, expert tables int64.

    The compiled operations keep a matrix in bfloat16 where that is known to be exact (see ops/native/linear.py; one
    stored in F32 may happen to be exact too, and then takes less than this). Without them an upper bound: PyTorch's
    matrices are padded, and packed a second time.
    """
    elements = math.prod(spec.logical_shape)
    if not spec.is_float and spec.scale is None:
        return _INTEGER * elements
    if len(spec.logical_shape) < 2:
        return _FLOAT * elements
    if compiled:
        multiplied = spec.name.endswith(".weight") and spec.part is not Part.EMBEDDING
        exact = spec.dtype == "BF16" or scale_dtype == "F8_E8M0"
        return (_HALF if multiplied and exact else _FLOAT) * elements
    rows, columns = (-(-size // 16) * 16 for size in spec.logical_shape)
    return 2 * _FLOAT * rows * columns


def least_page_counts(sliding_window: int, max_model_len: int, depth: int, options: EngineConfig) -> tuple[int, int]:
    """(window pages, entry pages), null pages included, with which one request of the longest context can run."""
    reach = max_model_len + depth + 1
    live = _live_tokens(sliding_window)
    window = (live + min(options.max_num_batched_tokens, reach) + depth) // BLOCK_TOKENS + 2
    return window, reach // BLOCK_TOKENS + 2


def page_counts(sliding_window: int, max_model_len: int, depth: int, options: EngineConfig) -> tuple[int, int]:
    """(window pages, entry pages), null pages included: what was asked for, or enough for every sequence at once.

    Unless gpu_memory_utilization is given, long contexts count for less: a small model with a long context would fill
    the machine for requests that nobody sends. Raises ConfigError when not even one request of the longest context
    would fit.
    """
    window_least, entry_least = least_page_counts(sliding_window, max_model_len, depth, options)
    seqs = options.max_num_seqs
    window = options.window_pages or window_least + seqs * ((_live_tokens(sliding_window) + depth) // BLOCK_TOKENS + 1)
    contexts = seqs * (entry_least - 1)
    if options.gpu_memory_utilization is None:
        short = seqs * (SHORT_CONTEXT // BLOCK_TOKENS + 1)
        contexts = min(contexts, max(short, 2 * (entry_least - 1)))
    entries = options.entry_pages or 1 + contexts
    for name, count, least in (("window_pages", window, window_least), ("entry_pages", entries, entry_least)):
        if count < least:
            raise ConfigError(f"{name}: {count} pages; one request of {max_model_len} tokens needs {least}")
    return window, entries


def _live_tokens(sliding_window: int) -> int:
    """A request's window, and the blocks that both it and a step's rows begin and end in."""
    return sliding_window + COMPRESSION_REACH + 2 * BLOCK_TOKENS


def size_text(number: float) -> str:
    """ "1.25 GB"; decimal units, as disks and model sizes are given in."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if number >= limit:
            return f"{number / limit:,.2f} {unit}"
    return f"{number:.0f} B"
