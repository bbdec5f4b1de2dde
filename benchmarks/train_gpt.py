"""A small GPT, trained as people train them: batches out of one long text, AdamW with warm-up and cosine decay,
gradients accumulated and clipped, autocast, and checkpoints that training goes on from.

It knows nothing of framejit: `framejit run benchmarks/train_gpt.py` compiles it as it is. `loss_curves.py` compares
both.
"""
import argparse
import json
import math
import os
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: int = 64
    block: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 64
    dropout: float = 0.0


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.inner = nn.Linear(config.width, 3 * config.width, bias=False)
        self.outer = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.inner(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.outer(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.first, self.attention = nn.LayerNorm(config.width), Attention(config)
        self.second = nn.LayerNorm(config.width)
        self.feed = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class GPT(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.block, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets=None):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    def optimizer(self, rate, decay):
        parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def text(length, vocabulary):
    """Letters that follow from the two before them, and now and then do not."""
    generator = torch.Generator().manual_seed(1)
    table = torch.randint(vocabulary, (vocabulary, vocabulary), generator=generator).tolist()
    noise = torch.rand(length, generator=generator).tolist()
    random = torch.randint(vocabulary, (length,), generator=generator).tolist()
    letters = random[:2]
    for place in range(2, length):
        letters.append(random[place] if noise[place] < 0.1 else table[letters[-2] % 8][letters[-1]])
    return torch.tensor(letters)


def batch(data, options):
    places = torch.randint(len(data) - options.block, (options.batch, 1)) + torch.arange(options.block + 1)
    letters = data[places].to(options.device)
    return letters[:, :-1], letters[:, 1:]


def rate_at(step, options):
    if step < options.warmup:
        return options.rate * (step + 1) / options.warmup
    done = (step - options.warmup) / max(options.steps - options.warmup, 1)
    return options.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def estimated_loss(model, data, options, around):
    model.eval()
    losses = torch.zeros(4)
    for number in range(4):
        inputs, targets = batch(data, options)
        with around:
            losses[number] = model(inputs, targets)[1]
    model.train()
    return losses.mean().item()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--stop", type=int, help="end behind this step, as if interrupted")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--single", action="store_true", help="no autocast")
    parser.add_argument("--evaluate", type=int, default=100, help="steps between evaluations and checkpoints")
    parser.add_argument("--checkpoint", default="", help="a file to go on from, if it is there, and to write")
    parser.add_argument("--losses", default="", help="where to write the losses, as JSON")
    return parser.parse_args()


def main():
    options = arguments()
    torch.manual_seed(options.seed)
    config = Config(block=options.block, layers=options.layers, heads=options.heads, width=options.width)
    data = text(20_000, config.vocabulary)
    training, held_out = data[:18_000], data[18_000:]
    model = GPT(config).to(options.device)
    optimizer = model.optimizer(options.rate, 0.1)
    around = nullcontext() if options.single else torch.autocast(options.device, torch.bfloat16)
    begin, losses, evaluated = 0, [], []
    if options.checkpoint and os.path.exists(options.checkpoint):
        kept = torch.load(options.checkpoint, map_location=options.device, weights_only=False)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"].cpu())
        begin, losses, evaluated = kept["step"], kept["losses"], kept["evaluated"]
    started = time.perf_counter()
    for step in range(begin, options.steps if options.stop is None else options.stop):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, options)
        total = 0.0
        for _ in range(options.accumulate):
            inputs, targets = batch(training, options)
            with around:
                _, loss = model(inputs, targets)
                loss = loss / options.accumulate
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
        if (step + 1) % options.evaluate == 0:
            evaluated.append(estimated_loss(model, held_out, options, around))
            print(f"step {step + 1}: loss {total:.4f}, held out {evaluated[-1]:.4f}", flush=True)
            if options.checkpoint:
                torch.save(
                    {
                        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": asdict(config),
                        "random": torch.get_rng_state(), "step": step + 1, "losses": losses, "evaluated": evaluated,
                    },
                    options.checkpoint,
                )
    seconds = time.perf_counter() - started
    print(f"{len(losses)} steps, loss {losses[-1]:.4f}, {seconds:.1f} s")
    if options.losses:
        with open(options.losses, "w") as file:
            json.dump({"losses": losses, "evaluated": evaluated, "seconds": seconds}, file)


if __name__ == "__main__":
    main()
