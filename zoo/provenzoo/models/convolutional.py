"""ResNet-18 and VGG-19 with batch norm for small images: torchvision's, with the changes usual at 32 x 32.

He et al. 2016 (arXiv:1512.03385) and Simonyan and Zisserman 2015 (arXiv:1409.1556), as the counterparts of vision
transformers in Jelassi et al. 2022, Figure 5. Theirs, unchanged, are `torchvision/resnet18` and `torchvision/vgg19_bn`.
"""

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.vgg import cfgs, make_layers

from provenzoo.errors import ZooError
from provenzoo.models.base import Count, Groups, Model


class ResNet18(Model, ResNet):
    """torchvision's ResNet-18, whose stem is a 3 x 3 convolution of stride 1 without max-pool.

    All else, state dict and draw included, is torchvision's.
    """

    groups: Groups = {"features": ["conv1.*", "bn1.*", "layer[1234].*"], "head": ["fc.*"]}

    def __init__(self, *, channels: Count, num_classes: Count) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes=num_classes)
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.maxpool = nn.Identity()
        self.groups = type(self).groups  # torchvision's ResNet keeps the groups of its convolutions there


class VGG19BN(Model, nn.Module):
    """torchvision's layers of VGG-19 with batch norm, their mean over the image and one linear map to the classes."""

    groups: Groups = {"features": ["features.*"], "head": ["head.*"]}

    def __init__(self, *, image_size: Count, channels: Count, num_classes: Count) -> None:
        super().__init__()
        if image_size < 32:
            raise ZooError(f"image_size: five poolings leave nothing of {image_size} x {image_size}; set `size` to 32")
        self.features = make_layers(cfgs["E"], batch_norm=True)
        if channels != 3:
            self.features[0] = nn.Conv2d(channels, 64, 3, padding=1)
        self.head = nn.Linear(512, num_classes)
        self._draw()

    def _draw(self) -> None:
        """As torchvision draws its VGG."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType]  # each has one
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images `[B, channels, H, W]` of 32 x 32 or more -> logits `[B, num_classes]`."""
        return self.head(self.features(x).mean((2, 3)))
