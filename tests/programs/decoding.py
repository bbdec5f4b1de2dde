"""The decoding programs under test, in a module of their own as a user would have them."""
# ruff: noqa: B905
import torch
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=17, width=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        h = self.emb(ids)
        h = torch.tanh(self.mix(h)).cumsum(1) / 4
        return self.head(h)


@torch.no_grad()
def greedy(model, ids, stop, limit):
    """Greedy decoding until every row has produced `stop`."""
    done = torch.zeros(ids.shape[0], dtype=torch.bool)
    for _ in range(limit):
        logits = model(ids)[:, -1]
        token = logits.argmax(-1)
        token = torch.where(done, torch.full_like(token, stop), token)
        ids = torch.cat([ids, token[:, None]], 1)
        done = done | (token == stop)
        if done.all():
            break
    return ids, done


@torch.no_grad()
def greedy_in_a_window(model, window, stop, limit):
    """Greedy decoding over a window of fixed length, so that shapes never change."""
    produced = []
    for _ in range(limit):
        token = model(window)[:, -1].argmax(-1)
        window = torch.cat([window[:, 1:], token[:, None]], 1)
        produced.append(token)
        if (token == stop).all():
            break
    return torch.stack(produced, 1)


@torch.no_grad()
def beam_search(model, start, width, steps, stop):
    """Beam search whose bookkeeping is Python: scores and tokens cross by .tolist()."""
    beams = [(0.0, [start])]
    for _ in range(steps):
        candidates = []
        for score, tokens in beams:
            if tokens[-1] == stop:
                candidates.append((score, tokens))
                continue
            window = ([start] * 4 + tokens)[-4:]
            logits = model(torch.tensor([window]))[0, -1]
            logp = torch.log_softmax(logits, -1)
            top, index = logp.topk(width)
            for s, t in zip(top.tolist(), index.tolist()):
                candidates.append((score + s, tokens + [t]))
        candidates.sort(key=lambda c: -c[0])
        beams = candidates[:width]
    return beams
