"""A script to be watched: a detector's last steps, as people write them."""
import torch


def halved(x):
    if x.abs().max().item() > 1e3:
        print("large")
    return x / 2


def scores(x, weights):
    x = halved(x)
    return torch.softmax(x @ weights, -1)


def kept(boxes, threshold):
    order = boxes[boxes[:, 0] > threshold]
    return order * 2


def largest(x):
    return x.max(-1).values.tolist()


def attention(q, k, v):
    for _ in range(4):
        q = torch.tanh(torch.softmax(q @ k.T, -1) @ v) + q
    return q


torch.manual_seed(0)
weights = torch.randn(64, 64)
for step in range(200):
    x = torch.randn(128, 64)
    y = scores(x, weights)
    found = kept(y, 0.01)
    best = largest(y)
    if step % 20 == 0:
        print(f"step {step:3}: {len(found)} kept, best {max(best):.3f}")
print("attention", tuple(attention(x, x, x).shape))
