"""A small network of the user's own, fitted to what scipy integrates, with a learning rate that falls."""
import numpy as np
import scipy.integrate
import torch

torch.manual_seed(0)
points = np.linspace(0, 10, 400)
solved = scipy.integrate.solve_ivp(lambda t, y: [y[1], -y[0] - 0.1 * y[1]], (0, 10), [1.0, 0.0], t_eval=points)
times = torch.from_numpy(points).float()[:, None]
wanted = torch.from_numpy(solved.y[0]).float()[:, None]


class Network(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(3)])
        self.first, self.last = torch.nn.Linear(1, width), torch.nn.Linear(width, 1)

    def forward(self, x):
        x = torch.sin(self.first(x))
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.last(x)


model = Network(64)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
for _ in range(300):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(times), wanted)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
print(bool(loss < 0.5))
