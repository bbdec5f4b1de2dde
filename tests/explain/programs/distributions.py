"""Fitting a normal distribution to data by the log likelihood, with torch.distributions."""
import torch

torch.manual_seed(0)
data = torch.randn(200) * 2 + 5
location, log_scale = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
optimizer = torch.optim.Adam([location, log_scale], lr=0.3)


def negative_log_likelihood(data, location, log_scale):
    return -torch.distributions.Normal(location, log_scale.exp()).log_prob(data).mean()


for _ in range(60):
    optimizer.zero_grad()
    loss = negative_log_likelihood(data, location, log_scale)
    loss.backward()
    optimizer.step()
print(round(float(location), 1), round(float(log_scale.exp()), 1))
