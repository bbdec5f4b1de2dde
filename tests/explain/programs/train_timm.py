"""Two training steps of an image model of timm."""
import torch

import torchvision_shim  # noqa: F401  lets a torchvision that was built for another torch be imported

# isort: split
import timm

torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in range(2):
    loss = train_step(torch.randn(2, 3, 64, 64), torch.tensor([1, 3]))
print(loss == loss)
