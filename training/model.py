"""The trainable model: float32 master weights under official tensor names, and batched differentiable forwards.

Routed experts are kept stacked (`layers.2.ffn.experts.w1` [E, I, d]); `official_tensors` unstacks them. A forward
works on *prepared* weights: masters cast to the compute dtype, or rounded straight-through to what the official
checkpoint can hold (`Model.prepare`). Everything else is in layers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from training.config import Sizes, rope_tables
from training.layers import (
    Chain,
    Flags,
    LayerOutput,
    LayerWeights,
    decoder_layer,
    hc_collapse,
    rms_norm,
    round_input,
)
from training.quantise import straight_through

FP8_NAMES = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "e_proj", "h_proj", "shared_experts.w1", "shared_experts.w2")
FLOAT32_SUFFIXES = ("attn_sink", "ape", "gate.bias", "_fn", "_base", "_scale")
TOP = ("norm.weight", "hc_head_fn", "hc_head_base", "hc_head_scale")
MTP_TOP = (*TOP, "enorm.weight", "hnorm.weight", "e_proj.weight", "h_proj.weight")
HASH_BONUS = 1e4  # outranks any router score, so that the hash table alone selects


def stored_form(name: str) -> str:
    """ "fp8", "fp4", "bf16" or "f32": how the official checkpoint stores a tensor (spec: tensor table)."""
    if ".experts." in name:
        return "fp4"
    if name.endswith(FLOAT32_SUFFIXES):
        return "f32"
    stem = name.removesuffix(".weight")
    if "compressor" not in name and stem.endswith((*FP8_NAMES, "shared_experts.w3")):
        return "fp8"
    return "bf16"


def hadamard_matrix(n: int) -> Tensor:
    """Sylvester's +-1 matrix [n, n], unnormalised (exact in bf16)."""
    m = torch.ones(1, 1)
    while m.shape[0] < n:
        m = torch.cat([torch.cat([m, m], 1), torch.cat([m, -m], 1)], 0)
    return m


def _block_shapes(p: str, ratio: int, hashed: bool, z: Sizes) -> dict[str, tuple[int, ...]]:
    a, f, i = p + "attn.", p + "ffn.", p + "attn.indexer."
    shapes: dict[str, tuple[int, ...]] = {a + "attn_sink": (z.heads,)}
    for site in ("attn", "ffn"):
        rows = (2 + z.hc) * z.hc
        shapes |= {f"{p}hc_{site}_fn": (rows, z.hc * z.d), f"{p}hc_{site}_base": (rows,), f"{p}hc_{site}_scale": (3,)}
        shapes[f"{p}{site}_norm.weight"] = (z.d,)
    shapes |= {a + "wq_a.weight": (z.q_rank, z.d), a + "wq_b.weight": (z.heads * z.head_dim, z.q_rank)}
    shapes |= {a + "q_norm.weight": (z.q_rank,), a + "kv_norm.weight": (z.head_dim,)}
    shapes |= {a + "wkv.weight": (z.head_dim, z.d), a + "wo_b.weight": (z.d, z.groups * z.o_rank)}
    shapes[a + "wo_a.weight"] = (z.groups * z.o_rank, z.heads * z.head_dim // z.groups)
    parts = [(a + "compressor.", z.head_dim)] if ratio else []
    parts += [(i + "compressor.", z.index_dim)] if ratio == 4 else []
    for c, head_dim in parts:
        width = head_dim * (2 if ratio == 4 else 1)
        shapes |= {c + "wkv.weight": (width, z.d), c + "wgate.weight": (width, z.d)}
        shapes |= {c + "ape": (ratio, width), c + "norm.weight": (head_dim,)}
    if ratio == 4:
        shapes |= {i + "wq_b.weight": (z.index_heads * z.index_dim, z.q_rank)}
        shapes |= {i + "weights_proj.weight": (z.index_heads, z.d)}
    shapes[f + "gate.weight"] = (z.experts, z.d)
    shapes |= {f + "gate.tid2eid": (z.vocab, z.topk)} if hashed else {f + "gate.bias": (z.experts,)}
    for w, out, inp in (("w1", z.inter, z.d), ("w3", z.inter, z.d), ("w2", z.d, z.inter)):
        shapes[f"{f}experts.{w}"] = (z.experts, out, inp)
        shapes[f"{f}shared_experts.{w}.weight"] = (out, inp)
    return shapes


def parameter_shapes(z: Sizes) -> dict[str, tuple[int, ...]]:
    """Names (routed experts stacked) -> shapes."""
    head = {"hc_head_fn": (z.hc, z.hc * z.d), "hc_head_base": (z.hc,), "hc_head_scale": (1,)}
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (z.vocab, z.d), "head.weight": (z.vocab, z.d)}
    shapes |= {"norm.weight": (z.d,), **head}
    for n in range(z.layers):
        shapes |= _block_shapes(f"layers.{n}.", z.ratios[n], n < z.n_hash, z)
    shapes |= _block_shapes("mtp.0.", z.ratios[z.layers], False, z)
    shapes |= {f"mtp.0.{n}.weight": (z.d,) for n in ("enorm", "hnorm", "norm")}
    shapes |= {f"mtp.0.{n}.weight": (z.d, z.d) for n in ("e_proj", "h_proj")}
    return shapes | {"mtp.0." + n: s for n, s in head.items()}


def initial_tensor(name: str, shape: tuple[int, ...], z: Sizes, g: torch.Generator) -> Tensor:
    """Starting value. Hyper-connections start near "read the mean, write to all, keep each stream apart"."""
    if name.endswith("tid2eid"):
        return torch.stack([torch.randperm(z.experts, generator=g)[: z.topk] for _ in range(z.vocab)])
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith("_scale"):
        return torch.ones(shape)
    if name.endswith("_base"):
        base = torch.zeros(shape)
        base[: z.hc] = -1.1  # sigmoid = 1/4
        if shape[0] > z.hc:
            base[2 * z.hc :] = 3 * torch.eye(z.hc).flatten()
        return base
    if name.endswith(("ape", "attn_sink", "gate.bias")):
        return torch.zeros(shape)
    if name.endswith("_fn"):
        return 0.01 * torch.randn(shape, generator=g)
    if name == "embed.weight":
        return 0.1 * torch.randn(shape, generator=g)
    if name == "head.weight":
        return 0.02 * torch.randn(shape, generator=g)
    std = shape[-1] ** -0.5
    if name.endswith(("wo_b.weight", "experts.w2", "shared_experts.w2.weight")):
        std *= 0.3  # sublayers start quiet
    return std * torch.randn(shape, generator=g)


class Prepared(NamedTuple):
    """Weights of one step, ready for the forwards."""

    top: LayerWeights  # embed, head, norm, hc_head_*
    layers: list[LayerWeights]
    mtp: LayerWeights  # its decoder layer, same keys as a trunk layer of ratio 0
    mtp_top: LayerWeights  # enorm, hnorm, e_proj, h_proj, norm, hc_head_*


class TrunkOutput(NamedTuple):
    streams: Tensor  # [B, S, hc, d], before hc_head
    loads: list[Tensor]  # tokens per expert, trunk layers
    index_loss: Tensor


Compiled = Callable[..., Any]


@dataclass
class Functions:
    """The forwards' building blocks, compiled or not."""

    layer: dict[int, Compiled]
    chain: Compiled
    logits: Compiled
    loss: Compiled
    mtp_input: Compiled


class Model:
    """Holds masters `tensors` (float32 leaves; tid2eid int64) and runs forwards on prepared weights."""

    def __init__(self, fields: dict[str, Any], device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.fields, self.z, self.device, self.dtype = fields, Sizes.of(fields), device, dtype
        self.tensors: dict[str, Tensor] = {}
        prefixes = [f"layers.{i}." for i in range(self.z.layers)] + ["mtp.0."]
        self.layer_names = {p: self._short_names(p) for p in prefixes}
        self.functions = self._functions(compiled=False)
        length = fields["max_position_embeddings"] + 4  # drafting steps look a few positions ahead
        self.rot = {n: t.to(device) for n, t in rope_tables(fields, length).items()}
        self.rot["hadamard"] = hadamard_matrix(self.z.index_dim).to(device, dtype)

    def _short_names(self, p: str) -> dict[str, str]:
        """Keys of a layer's prepared weights -> tensor names without the prefix."""
        names = [n.removeprefix(p) for n in parameter_shapes(self.z) if n.startswith(p)]
        names = [n for n in names if n not in MTP_TOP and not n.endswith(("tid2eid", "gate.bias"))]
        return {n.removeprefix("attn.").removesuffix(".weight"): n for n in names}

    def initialise(self, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        shapes = parameter_shapes(self.z)
        self.load_stacked({name: initial_tensor(name, shape, self.z, g) for name, shape in shapes.items()})

    def load_stacked(self, tensors: dict[str, Tensor]) -> None:
        for name in parameter_shapes(self.z):
            value = tensors[name].detach().clone().to(self.device)
            if value.is_floating_point():
                value = value.float().requires_grad_(not name.endswith("gate.bias"))
            self.tensors[name] = value

    def load_official(self, tensors: dict[str, Tensor]) -> None:
        """Official names, unquantised values; the inverse of `official_tensors`."""
        stacked = dict(tensors)
        for name in parameter_shapes(self.z):
            if ".ffn.experts." in name:
                p, w = name.rsplit(".", 1)
                stacked[name] = torch.stack([tensors[f"{p}.{e}.{w}.weight"] for e in range(self.z.experts)])
        self.load_stacked(stacked)

    def official_tensors(self) -> dict[str, Tensor]:
        """Official names -> float32 masters on the CPU (tid2eid int64)."""
        out: dict[str, Tensor] = {}
        for name, t in self.tensors.items():
            t = t.detach().cpu()
            if ".ffn.experts." in name:
                p, w = name.rsplit(".", 1)
                out |= {f"{p}.{e}.{w}.weight": t[e].contiguous() for e in range(self.z.experts)}
            else:
                out[name] = t
        return out

    # -------- prepared weights

    def _cast(self, name: str, quantised: bool) -> Tensor:
        form = stored_form(name)
        keep32 = form == "f32" or name.endswith("norm.weight") or "gate" in name or "compressor" in name
        dtype = torch.float32 if keep32 or name == "embed.weight" else self.dtype
        return straight_through(self.tensors[name], form if quantised else "f32", dtype)

    def _prepare_layer(self, p: str, quantised: bool) -> LayerWeights:
        w = {short: self._cast(p + name, quantised) for short, name in self.layer_names[p].items()}
        w["gate"] = w.pop("ffn.gate")
        first = [w.pop(f"ffn.{e}").reshape(-1, self.z.d) for e in ("experts.w1", "shared_experts.w1")]
        third = [w.pop(f"ffn.{e}").reshape(-1, self.z.d) for e in ("experts.w3", "shared_experts.w3")]
        w["w13"] = torch.cat(first + third)
        routed = w.pop("ffn.experts.w2").transpose(0, 1).reshape(self.z.d, -1)
        w["w2"] = torch.cat([routed, w.pop("ffn.shared_experts.w2")], 1)
        if p + "ffn.gate.tid2eid" in self.tensors:
            table = self.tensors[p + "ffn.gate.tid2eid"]
            w["select"] = torch.zeros(self.z.vocab, self.z.experts, device=self.device)
            w["select"].scatter_(1, table, HASH_BONUS)
        else:
            w["select"] = self.tensors[p + "ffn.gate.bias"].expand(self.z.vocab, -1).contiguous()
        return w

    def prepare(self, quantised: bool = False) -> Prepared:
        top = {n.removesuffix(".weight"): self._cast(n, quantised) for n in ("embed.weight", "head.weight", *TOP)}
        layers = [self._prepare_layer(f"layers.{i}.", quantised) for i in range(self.z.layers)]
        return Prepared(top, layers, *self.prepare_mtp(quantised))

    def prepare_mtp(self, quantised: bool = False) -> tuple[LayerWeights, LayerWeights]:
        own = {n.removesuffix(".weight"): self._cast("mtp.0." + n, quantised) for n in MTP_TOP}
        return self._prepare_layer("mtp.0.", quantised), own

    # -------- building blocks

    def _functions(self, compiled: bool) -> Functions:
        z = self.z

        def layer_of(ratio: int) -> Compiled:
            def layer(X: Tensor, ids: Tensor, w: LayerWeights, rot: LayerWeights, flags: Flags) -> LayerOutput:
                return decoder_layer(X, ids, w, rot, flags, ratio, z)

            return layer

        def chain_layer(
            X: Tensor, ids: Tensor, w: LayerWeights, rot: LayerWeights, flags: Flags, chain: Chain
        ) -> LayerOutput:
            return decoder_layer(X, ids, w, rot, flags, 0, z, chain)

        def logits(X: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm: Tensor, head: Tensor) -> Tensor:
            return F.linear(rms_norm(hc_collapse(X, fn, scale, base, z), norm, z.eps), head)

        def loss(lg: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            lf = lg.float()
            picked = lf.gather(-1, target[..., None])[..., 0]
            return lf.logsumexp(-1) - picked, lf.argmax(-1)

        def mtp_input(X: Tensor, embedded: Tensor, w: LayerWeights, on: Tensor) -> Tensor:
            e = rms_norm(embedded.to(X.dtype), w["enorm"], z.eps)
            g = rms_norm(X, w["hnorm"], z.eps)
            return F.linear(round_input(e, on), w["e_proj"])[..., None, :] + F.linear(round_input(g, on), w["h_proj"])

        wrap: Callable[[Compiled], Compiled] = (
            (lambda f: torch.compile(f, fullgraph=True, dynamic=False)) if compiled else (lambda f: f)
        )
        layers = {r: wrap(layer_of(r)) for r in sorted(set(z.ratios))}
        return Functions(layers, wrap(chain_layer), wrap(logits), wrap(loss), wrap(mtp_input))

    def compile(self) -> None:
        self.functions = self._functions(compiled=True)

    # -------- forwards

    def flags(self, quantise: bool = False, dense: bool = False) -> Flags:
        return Flags(*(torch.tensor(float(v), device=self.device) for v in (quantise, dense)))

    def trunk(self, ids: Tensor, w: Prepared, flags: Flags) -> TrunkOutput:
        """ids [B, S] -> streams, loads, index loss."""
        embedded = F.embedding(ids, w.top["embed"]).to(self.dtype)
        X = embedded[:, :, None].repeat(1, 1, self.z.hc, 1)
        loads, index_loss = [], torch.zeros((), device=self.device)
        for i, layer in enumerate(w.layers):
            out = self.functions.layer[self.z.ratios[i]](X, ids, layer, self.rot, flags)
            X = out.streams
            loads.append(out.load)
            index_loss = index_loss + out.index_loss
        return TrunkOutput(X, loads, index_loss)

    def logits(self, X: Tensor, w: Prepared, mtp: bool = False) -> Tensor:
        """Streams [B, S, hc, d] -> logits [B, S, V] in the compute dtype."""
        own = w.mtp_top if mtp else w.top
        parts = (own["hc_head_fn"], own["hc_head_scale"], own["hc_head_base"], own["norm"])
        out: Tensor = self.functions.logits(X, *parts, w.top["head"])
        return out

    def mtp(self, X: Tensor, ids_next: Tensor, w: Prepared, flags: Flags) -> LayerOutput:
        """Trunk streams of positions t and tokens at t + 1 -> MTP streams (their logits predict t + 2)."""
        Z = self.functions.mtp_input(X, F.embedding(ids_next, w.top["embed"]), w.mtp_top, flags.quantise)
        out: LayerOutput = self.functions.layer[0](Z, ids_next, w.mtp, self.rot, flags)
        return out

    def mtp_chain(self, X: Tensor, ids: Tensor, w: Prepared, flags: Flags, depth: int) -> list[Tensor]:
        """Recursive drafting, exactly as an engine runs it, for every position at once.

        X [B, S, hc, d] trunk streams; ids [B, S + depth] the row's tokens (chain t is fed those at t + 1, t + 2, ...).
        Step j of chain t sits at position t + j - 1 and sees the window's depth-1 rows up to t and the chain's own
        rows. Returns logits [B, S, V] for j = 1..depth; those of step j predict the token at t + j + 1.
        """
        S = X.shape[1]
        out = self.mtp(X, ids[:, 1 : S + 1].contiguous(), w, flags)
        window_keys = out.kv
        earlier = torch.zeros_like(out.kv, requires_grad=out.kv.requires_grad)
        logits = [self.logits(out.streams, w, mtp=True)]
        for j in range(2, depth + 1):
            fed = ids[:, j : S + j].contiguous()
            Z = self.functions.mtp_input(out.streams, F.embedding(fed, w.top["embed"]), w.mtp_top, flags.quantise)
            rot = dict(self.rot)
            for n in ("main_cos", "main_sin"):
                rot[n] = self.rot[n][j - 1 : S + j - 1].contiguous()
            has_earlier = torch.tensor(float(j > 2), device=self.device)
            chain = Chain(window_keys, earlier, has_earlier, torch.tensor(j - 1, device=self.device))
            out = self.functions.chain(Z, fed, w.mtp, rot, flags, chain)
            earlier = out.kv
            logits.append(self.logits(out.streams, w, mtp=True))
        return logits


def padded(ids: Tensor, multiple: int) -> Tensor:
    """Pads [B, S] on the right to whole windows; causal, so real positions do not change."""
    return F.pad(ids, (0, -ids.shape[1] % multiple))
