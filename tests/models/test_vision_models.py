"""torchvision and timm models, random weights, small images: equal to eager, one graph, no recompile."""
import pytest
import torch
from torch import nn

from support import check

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def models():
    torchvision = pytest.importorskip("torchvision")

    return torchvision.models


def image(size=32, batch=1):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_resnet18(models):
    with torch.no_grad():
        check(models.resnet18(num_classes=10).eval(), image())


def test_vit_b_16(models):
    with torch.no_grad():
        check(
            models.VisionTransformer(
                32, 16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10
            ).eval(),
            image(),
        )


def test_timm_efficientnet_lite0(models):
    timm = pytest.importorskip("timm")
    with torch.no_grad():
        check(timm.create_model("efficientnet_lite0", num_classes=10).eval(), image())


def test_resnet18_in_training_mode_updates_its_running_statistics(models):
    net = models.resnet18(num_classes=10).train()
    check(net, image(batch=2), graphs=1, breaks=0)


def test_torch_transformer():
    net = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    with torch.no_grad():
        check(
            net, torch.randn(1, 3, 16), torch.randn(1, 2, 16), graphs=range(1, 3), breaks=range(0, 3), atol=1e-5,
            rtol=1e-5,
        )


def test_unet_like_module_with_skips():
    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(8, 4, 2, stride=2), nn.ConvTranspose2d(8, 3, 2, stride=2)])

        def forward(self, x):
            skips = []
            for conv in self.down:
                x = nn.functional.max_pool2d(conv(x).relu(), 2)
                skips.append(x)
            for i, conv in enumerate(self.up):
                if i:
                    x = torch.cat([x, skips[-1 - i]], 1)
                x = conv(x)
            return x, {"shape": x.shape[-2:]}

    check(Unet(), image())
