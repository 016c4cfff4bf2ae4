"""A plain PyTorch training script: one run of the models of `sweep.py`, eager, from end to end.

Command: python sweep_in_torch.py RUN.json FOLDER

RUN.json is the spec of the run; FOLDER has `train.npy`, `validation.npy` and `test.npy`, the ids of
each part. The last line that it prints is the validation loss, in nats per token.
"""

import importlib
import json
import math
import pathlib
import sys
from typing import Any

import numpy as np

# Not a dependency: looked up by name, so that a type checker needs no torch either.
torch: Any = importlib.import_module("torch")
nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    """Causal attention and a feed-forward network, each with its norm before or after the sum."""

    def __init__(self, model: dict[str, Any]):
        super().__init__()
        D, hidden = model["width"], model["ffn_width"]
        self.heads, self.is_pre = model["heads"], model["norm_placement"] == "pre"
        self.gated = model["ffn"] == "swiglu"
        activations = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}
        self.activation = activations[model["ffn"]]
        self.qkv = linear(D, 3 * D)
        self.out = linear(D, D)
        self.first = linear(D, 2 * hidden if self.gated else hidden)
        self.last = linear(hidden, D)
        self.norms = nn.ModuleList([nn.LayerNorm(D), nn.LayerNorm(D)])

    def forward(self, x: Any) -> Any:
        for norm, sublayer in zip(self.norms, (self.attend, self.transform), strict=True):
            x = x + sublayer(norm(x)) if self.is_pre else norm(x + sublayer(x))
        return x

    def attend(self, x: Any) -> Any:
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(B, T, D))

    def transform(self, x: Any) -> Any:
        if not self.gated:
            return self.last(self.activation(self.first(x)))
        gate, up = self.first(x).chunk(2, dim=-1)
        return self.last(self.activation(gate) * up)


class Decoder(nn.Module):
    """Embeddings, blocks, and a head that is the embedding."""

    def __init__(self, model: dict[str, Any], length: int):
        super().__init__()
        D = model["width"]
        self.scale = math.sqrt(D)
        self.embedding = nn.Embedding(model["vocabulary"], D)
        nn.init.normal_(self.embedding.weight, std=D**-0.5)
        self.blocks = nn.ModuleList([Block(model) for _ in range(model["layers"])])
        is_pre = model["norm_placement"] == "pre"
        self.norm = nn.LayerNorm(D) if is_pre else nn.Identity()
        angles = np.arange(length)[:, None] * 10_000.0 ** (-np.arange(0, D, 2) / D)
        waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, D)
        self.register_buffer("positions", torch.tensor(waves, dtype=torch.float32))

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)


def linear(fan_in: int, fan_out: int) -> Any:
    """Returns a matrix without bias that keeps the size of what it reads."""
    module = nn.Linear(fan_in, fan_out, bias=False)
    nn.init.normal_(module.weight, std=fan_in**-0.5)
    return module


def rate_at(update: int, run: dict[str, Any]) -> float:
    """Returns the learning rate of an update, counted from 1."""
    schedule, steps = run["schedule"]["warmup_cosine"], run["training"]["steps"]
    peak, warmup = run["optimizer"]["learning_rate"], schedule["warmup_steps"]
    if update <= warmup:
        return peak * update / warmup
    done = (update - warmup) / max(steps - warmup, 1)
    final = schedule["final_fraction"]
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done)))


def loss_of(model: Any, rows: Any) -> Any:
    """Returns the mean loss of rows of one token more than the model reads."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def evaluate(model: Any, ids: Any, length: int, size: int) -> float:
    """Returns the mean loss over all whole rows of a part."""
    count = (len(ids) - 1) // length
    rows = torch.stack([ids[i * length : (i + 1) * length + 1] for i in range(count)])
    with torch.no_grad():
        sums = [float(loss_of(model, part)) * len(part) for part in rows.split(size)]
    return sum(sums) / count


def main() -> None:
    """Trains the run, saves it, and prints its loss."""
    run = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(sys.argv[2])
    parts = ("train", "validation", "test")
    ids = {name: torch.tensor(np.load(folder / f"{name}.npy"), dtype=torch.long) for name in parts}
    torch.manual_seed(run["seed"])
    draw = np.random.default_rng(run["seed"])
    plan, length = run["training"], run["data"]["length"]
    model = Decoder(run["model"], length)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    rule = run["optimizer"]["rule"]["adamw"]
    optimizer = torch.optim.AdamW(
        [{"params": matrices}, {"params": others, "weight_decay": 0.0}],
        betas=(rule["beta1"], rule["beta2"]),
        eps=rule["epsilon"],
        weight_decay=run["optimizer"]["weight_decay"],
    )
    for update in range(1, plan["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(update, run)
        starts = draw.integers(len(ids["train"]) - length, size=plan["batch_size"])
        loss = loss_of(model, torch.stack([ids["train"][s : s + length + 1] for s in starts]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run["optimizer"]["gradient_clip"])
        optimizer.step()
    size = plan["evaluation_batch_size"]
    validation = evaluate(model, ids["validation"], length, size)
    evaluate(model, ids["test"], length, size)
    torch.save(model.state_dict(), pathlib.Path(sys.argv[1]).with_suffix(".pt"))
    print(validation)


if __name__ == "__main__":
    main()
