#!/usr/bin/env python3
"""Time of one GPT-2 training step in PyTorch on the CPU, for comparison with `flashoverlap train`.

The same architecture (learned positions, LayerNorm, GELU-tanh, biases, tied head), the same sizes and
optimizer (AdamW, decay on matrices only, clipping), one process with all threads.

    /usr/bin/python3 bench/torch_step.py --dtype bf16 --threads 2
"""
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.c_fc, self.c_out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).bool())

    def attention(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(d, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
            y = F.softmax(s.masked_fill(~self.mask[:t, :t], float("-inf")), dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        h = self.c_fc(self.ln_2(x))
        try:
            h = F.gelu(h, approximate="tanh")
        except TypeError:
            h = 0.5 * h * (1 + torch.tanh(0.7978845608 * (h + 0.044715 * h ** 3)))
        return x + self.c_out(h)


class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocabulary, a.dim), nn.Embedding(a.context, a.dim)
        self.blocks = nn.ModuleList(Block(a.dim, a.heads, a.context) for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.dim)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.reshape(-1))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("layers", 12), ("heads", 12), ("dim", 768), ("context", 512), ("batch", 4),
                        ("vocabulary", 256), ("threads", 2), ("steps", 5)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--dtype", choices=("f32", "bf16"), default="bf16")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = GPT(a)
    matrices = [w for w in model.parameters() if w.dim() > 1]
    others = [w for w in model.parameters() if w.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}], lr=1e-4)
    tokens = torch.randint(0, a.vocabulary, (a.batch, a.context + 1))
    times = []
    for _ in range(a.steps + 1):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    print(f"torch {torch.__version__} {a.dtype} threads {a.threads}: median {statistics.median(times[1:]):.0f} ms a step, "
          f"min {min(times[1:]):.0f} ms, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
