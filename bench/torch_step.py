#!/usr/bin/env python3
"""Time of one GPT-2 training step in PyTorch on the CPU, for comparison with `flashoverlap train`.

The same model (learned positions, LayerNorm, GELU in tanh form, biases, tied head, no dropout), the same
sizes, data and optimizer (AdamW, decay on matrices only, clipping of the norm at 1), in one of two modes:

  single  one process, all threads
  tp      N processes of one thread each, tensor and sequence parallel as Megatron-LM does it: all-gather
          before and reduce-scatter after attention and MLP, over gloo; rows are sharded everywhere else

bf16 comes in three forms; `flashoverlap train` keeps float32 weights and optimizer, as the first two do:

  autocast  float32 weights, torch.autocast around the forward pass
  master    bf16 weights, float32 masters and moments in the optimizer (activations all bf16)
  pure      bf16 weights and moments

    bench/torch_setup.sh VENV && VENV/bin/python bench/torch_step.py --mode tp --dtype bf16 --json
    VENV/bin/python bench/torch_step.py --check     # tp gives the losses of single
"""
import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch  # noqa: E402  (after the environment)
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

SIZES = (("layers", 12), ("heads", 12), ("dim", 768), ("context", 512), ("batch", 4), ("vocabulary", 256))


# ---- collectives -------------------------------------------------------------------------------------
# Rows are the first dimension; rank r owns the r-th part of them.

def all_gather(x):
    full = x.new_empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]))
    dist.all_gather_into_tensor(full, x.contiguous())
    return full


def scatter_native(x):
    own = x.new_empty((x.shape[0] // dist.get_world_size(), *x.shape[1:]))
    dist.reduce_scatter_tensor(own, x.contiguous())
    return own


def scatter_alltoall(x):
    parts = torch.empty_like(x)
    dist.all_to_all_single(parts, x.contiguous())
    return parts.view(dist.get_world_size(), -1, *x.shape[1:]).sum(0)


def scatter_allreduce(x):
    x = x.contiguous().clone()
    dist.all_reduce(x)
    return x.chunk(dist.get_world_size())[dist.get_rank()].contiguous()


REDUCE_SCATTERS = {"reduce_scatter": scatter_native, "all_to_all": scatter_alltoall,
                   "all_reduce": scatter_allreduce}
reduce_scatter = scatter_native


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return all_gather(x)

    @staticmethod
    def backward(ctx, g):
        return reduce_scatter(g)


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return reduce_scatter(x)

    @staticmethod
    def backward(ctx, g):
        return all_gather(g)


def choose_reduce_scatter(rows, dim, dtype):
    """The fastest reduce-scatter that this gloo offers for messages of this size, the same on all ranks."""
    global reduce_scatter
    x, found = torch.zeros(rows, dim, dtype=dtype), {}
    for name, function in REDUCE_SCATTERS.items():
        try:
            function(x)
        except (RuntimeError, NotImplementedError, AttributeError):
            continue
        times = []
        for _ in range(5):
            dist.barrier()
            begin = time.perf_counter()
            function(x)
            times.append(time.perf_counter() - begin)
        found[name] = statistics.median(times)
    names = [None]
    if dist.get_rank() == 0:
        names = [min(found, key=found.get)]
    dist.broadcast_object_list(names, 0)
    reduce_scatter = REDUCE_SCATTERS[names[0]]
    return names[0]


# ---- model -------------------------------------------------------------------------------------------

class Block(nn.Module):
    """A rank's share: its heads, its hidden features. Partial sums leave without the bias when ranks > 1."""

    def __init__(self, a, rank, ranks, normal):
        super().__init__()
        d, self.batch, self.context = a.dim, a.batch, a.context
        self.heads, self.size, self.ranks = a.heads // ranks, d // a.heads, ranks
        scale = 0.02 / math.sqrt(2 * a.layers)
        qkv = normal(3 * d, d).view(3, ranks, d // ranks, d)[:, rank].reshape(-1, d)
        self.c_attn, self.c_attn_b = nn.Parameter(qkv.clone()), nn.Parameter(torch.zeros(len(qkv)))
        self.c_proj = nn.Parameter(normal(d, d, scale).chunk(ranks, 1)[rank].contiguous().clone())
        self.c_fc = nn.Parameter(normal(4 * d, d).chunk(ranks)[rank].clone())
        self.c_fc_b = nn.Parameter(torch.zeros(4 * d // ranks))
        self.c_out = nn.Parameter(normal(d, 4 * d, scale).chunk(ranks, 1)[rank].contiguous().clone())
        for name in ("c_attn", "c_attn_b", "c_proj", "c_fc", "c_fc_b", "c_out"):
            getattr(self, name).sharded = ranks > 1
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_proj_b, self.c_out_b = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))

    def attend(self, x):
        qkv = F.linear(x, self.c_attn, self.c_attn_b)
        q, k, v = qkv.view(self.batch, self.context, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(self.batch * self.context, -1)
        return F.linear(y, self.c_proj, self.c_proj_b if self.ranks == 1 else None)

    def feed(self, x):
        h = F.gelu(F.linear(x, self.c_fc, self.c_fc_b), approximate="tanh")
        return F.linear(h, self.c_out, self.c_out_b if self.ranks == 1 else None)

    def join(self, x, y, bias):
        return x + (y + bias)

    def forward(self, x):
        if self.ranks == 1:
            x = x + self.attend(self.ln_1(x))
            return x + self.feed(self.ln_2(x))
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        y = Scatter.apply(self.attend(Gather.apply(self.ln_1(x).to(dtype))))
        x = self.join(x, y, self.c_proj_b)
        y = Scatter.apply(self.feed(Gather.apply(self.ln_2(x).to(dtype))))
        return self.join(x, y, self.c_out_b)


class GPT(nn.Module):
    """Rows are the tokens of the batch, flat. The small embeddings and the head are whole on every rank and
    work on its own rows."""

    def __init__(self, a, rank, ranks):
        super().__init__()
        generator = torch.Generator().manual_seed(a.seed)

        def normal(rows, columns, deviation=0.02):
            return torch.randn(rows, columns, generator=generator) * deviation

        self.rows = a.batch * a.context // ranks
        self.first = rank * self.rows
        self.context, self.all_rows = a.context, a.batch * a.context
        self.wte, self.wpe = nn.Parameter(normal(a.vocabulary, a.dim)), nn.Parameter(normal(a.context, a.dim))
        self.blocks = nn.ModuleList(Block(a, rank, ranks, normal) for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.dim)

    def embed(self, tokens, positions):
        return F.embedding(tokens, self.wte) + F.embedding(positions, self.wpe)

    def head(self, x, targets):
        logits = F.linear(self.ln_f(x), self.wte)
        return F.cross_entropy(logits.float(), targets, reduction="sum") / self.all_rows

    def forward(self, tokens, targets):
        own = slice(self.first, self.first + self.rows)
        positions = torch.arange(self.first, self.first + self.rows) % self.context
        x = self.embed(tokens.reshape(-1)[own], positions)
        for block in self.blocks:
            x = block(x)
        return self.head(x, targets.reshape(-1)[own])


# ---- optimizer ---------------------------------------------------------------------------------------

class Optimizer:
    """AdamW behind clipping of the whole model's norm at 1."""

    def __init__(self, a, model, ranks):
        self.ranks = ranks
        self.weights = list(model.parameters())
        self.sharded = [i for i, w in enumerate(self.weights) if getattr(w, "sharded", False)]
        self.whole = [i for i, w in enumerate(self.weights) if not getattr(w, "sharded", False)]
        self.masters = self.weights
        if a.weights == "master":
            self.masters = [w.detach().float().requires_grad_() for w in self.weights]
            for m in self.masters:
                m.grad = torch.zeros_like(m)
        groups = [{"params": [m for m in self.masters if m.dim() > 1], "weight_decay": 0.1},
                  {"params": [m for m in self.masters if m.dim() <= 1], "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.95), fused=True)

    def gradients(self):
        grads = [w.grad for w in self.weights]
        if self.masters is not self.weights:
            torch._foreach_copy_([m.grad for m in self.masters], grads)
            grads = [m.grad for m in self.masters]
        if self.ranks > 1:
            parts = [grads[i] for i in self.whole]
            flat = torch.cat([g.reshape(-1) for g in parts])
            dist.all_reduce(flat)
            torch._foreach_copy_(parts, [f.view_as(g) for f, g in
                                         zip(flat.split([g.numel() for g in parts]), parts)])
        return grads

    def step(self):
        grads = self.gradients()
        squares = torch.stack(torch._foreach_norm(grads)).float() ** 2
        if self.ranks > 1:
            own = squares[self.sharded].sum()
            dist.all_reduce(own)
            total = own + squares[self.whole].sum()
        else:
            total = squares.sum()
        torch._foreach_mul_(grads, torch.clamp(1.0 / (total.sqrt() + 1e-6), max=1.0))
        self.adamw.step()
        if self.masters is not self.weights:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        for w in self.weights:
            w.grad = None


# ---- run ---------------------------------------------------------------------------------------------

def make_batches(a):
    """Batches from random places of the text, the same for every mode and rank."""
    generator = torch.Generator().manual_seed(a.seed + 1)
    if a.data:
        with open(a.data, "rb") as file:
            text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    else:
        at = torch.arange(1 << 20)
        text = ((at * at // 7 + at) % min(a.vocabulary, 256)).to(torch.uint8)
    if int(text.max()) >= a.vocabulary:
        raise SystemExit(f"torch_step.py: the text has byte {int(text.max())}, expected less than "
                         f"--vocabulary {a.vocabulary}")
    while True:
        at = torch.randint(0, len(text) - a.context, (a.batch,), generator=generator)
        rows = torch.stack([text[i:i + a.context + 1] for i in at.tolist()]).long()
        yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def keep_memory():
    """Freed memory stays with the process: giving it back and faulting it in again at every step cost
    PyTorch 7 % (jemalloc and tcmalloc give the same)."""
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, -1)
        libc.mallopt(top_pad, 1 << 30)


def compile_model(a, model):
    if a.compile == "whole":
        return torch.compile(model)
    if a.compile == "parts":
        # a layer is compiled once; what communicates stays outside
        for block in model.blocks:
            if a.mode == "single":
                block.compile()
            else:
                block.attend, block.feed = torch.compile(block.attend), torch.compile(block.feed)
                block.join = torch.compile(block.join)
        model.head = torch.compile(model.head)
    return model


def run_rank(rank, a, ranks, store, results):
    keep_memory()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    if a.bind and ranks > 1:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    collective = None
    bf16 = a.dtype == "bf16"
    if ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
        collective = choose_reduce_scatter(a.batch * a.context, a.dim,
                                           torch.bfloat16 if bf16 else torch.float32)
    model = GPT(a, rank, ranks)
    if bf16 and a.weights != "autocast":
        model.to(torch.bfloat16)
    optimizer = Optimizer(a, model, ranks)
    function = compile_model(a, model)
    batches, times, losses = make_batches(a), [], []
    for _ in range(a.warmup + a.steps):
        tokens, targets = next(batches)
        if ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16 and a.weights == "autocast"):
            loss = function(tokens, targets)
        loss.backward()
        optimizer.step()
        report = torch.tensor([time.perf_counter() - begin, loss.item()], dtype=torch.float64)
        if ranks > 1:
            dist.all_reduce(report[1:])
            dist.all_reduce(report[:1], op=dist.ReduceOp.MAX)
        times.append(float(report[0]) * 1e3)
        losses.append(float(report[1]))
    if rank == 0:
        with open(results, "w", encoding="utf-8") as file:
            json.dump({"times_ms": times[a.warmup:], "losses": losses, "reduce_scatter": collective}, file)
    if ranks > 1:
        dist.destroy_process_group()


def measure(a):
    if a.dtype == "f32":
        a.weights = "f32"
    ranks = a.ranks if a.mode == "tp" else 1
    if ranks > 1 and (a.heads % ranks or (a.batch * a.context) % ranks or a.compile == "whole"):
        raise SystemExit(f"torch_step.py: {a.heads} heads and {a.batch * a.context} rows with --compile "
                         f"{a.compile}, expected multiples of the {ranks} ranks and --compile off or parts")
    if not a.threads:
        a.threads = 1 if ranks > 1 else len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        store, results = os.path.join(folder, "store"), os.path.join(folder, "results")
        if ranks > 1:
            os.environ.setdefault("OMP_NUM_THREADS", str(a.threads))
            mp.spawn(run_rank, (a, ranks, store, results), nprocs=ranks)
        else:
            run_rank(0, a, 1, store, results)
        with open(results, encoding="utf-8") as file:
            result = json.load(file)
    times = result["times_ms"]
    median = statistics.median(times)
    return {"torch": torch.__version__, "mode": a.mode, "dtype": a.dtype, "weights": a.weights,
            "compile": a.compile, "ranks": ranks, "threads": a.threads, "attention": "sdpa",
            "optimizer": "adamw fused", "reduce_scatter": result["reduce_scatter"],
            "steps": len(times), "step_ms": median, "min_ms": min(times), "max_ms": max(times),
            "spread_pct": 100 * (max(times) - min(times)) / median, "times_ms": times,
            "loss": result["losses"][-1], "losses": result["losses"]}


def check(a):
    """tp against single on a tiny model: float32 to rounding, bf16 to bf16's."""
    failed = False
    for dtype, weights, tolerance in (("f32", "f32", 1e-5), ("bf16", "autocast", 5e-3), ("bf16", "master", 2e-2)):
        losses = {}
        for mode in ("single", "tp"):
            tiny = argparse.Namespace(**{**vars(a), "layers": 2, "heads": 4, "dim": 64, "context": 32, "batch": 4,
                                         "dtype": dtype, "weights": weights, "mode": mode, "steps": 6,
                                         "warmup": 0, "compile": "off", "threads": 1, "lr": 1e-2})
            losses[mode] = measure(tiny)["losses"]
        worst = max(abs(x - y) for x, y in zip(losses["single"], losses["tp"]))
        failed = failed or worst > tolerance or losses["single"][-1] >= losses["single"][0]
        print(f"{dtype} {weights}: losses {losses['single'][0]:.5f} to {losses['single'][-1]:.5f}, "
              f"single and tp differ by {worst:.1e}, allowed {tolerance:.0e}")
    return 1 if failed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in SIZES:
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--mode", choices=("single", "tp"), default="single")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="bf16")
    p.add_argument("--weights", choices=("autocast", "master", "pure"), default="autocast", help="of bf16")
    p.add_argument("--compile", choices=("off", "parts", "whole"), default="off",
                   help="torch.compile: layer by layer, or the whole model (single)")
    p.add_argument("--ranks", type=int, default=2, help="of tp")
    p.add_argument("--threads", type=int, default=0, help="of a process; 0: all cores, in tp one")
    p.add_argument("--bind", action="store_true", help="tp: a core for each rank")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=1, help="steps before that are not counted")
    p.add_argument("--data", help="a text; default: numbers")
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", action="store_true")
    p.add_argument("--check", action="store_true", help="tp against single on a tiny model")
    a = p.parse_args()
    if a.check:
        sys.exit(check(a))
    r = measure(a)
    if a.json:
        print(json.dumps(r))
    else:
        print(f"torch {r['torch']} {r['mode']} {r['dtype']} {r['weights']}, compile {r['compile']}, "
              f"{r['ranks']} ranks of {r['threads']} threads: median {r['step_ms']:.1f} ms a step, "
              f"{r['min_ms']:.1f} to {r['max_ms']:.1f}, loss {r['loss']:.4f}")


if __name__ == "__main__":
    main()
