"""An epoch over a DataLoader, whose last batch is short."""
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(90, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def evaluate(x, y):
    loss = (model(x) - y).abs().mean()
    if loss > 100:
        print("diverged")
    return loss


losses = []
for _ in range(2):
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = evaluate(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(len(losses), losses[-1] < losses[0])
