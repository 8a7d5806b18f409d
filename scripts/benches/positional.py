"""ViTs of ours, positional and vanilla, against timm's."""

from typing import Any

from benches.timing import Rows, Side, at_least, calls


def vit_pair(image_size: int) -> tuple[Any, Any]:
    """Our positional ViT-Ti/16 and timm's vanilla one."""
    import timm

    import provenzoo

    sizes = {"image_size": image_size, "channels": 3, "num_classes": 1000}
    ours = provenzoo.create_model("positional-vit-tiny", **sizes)
    return ours, timm.create_model("vit_tiny_patch16_224", img_size=image_size)


def vit_training(image_size: int, batch: int) -> tuple[Side, Side]:
    """A step on random images: forward, backward, AdamW."""
    import torch
    from torch.nn import functional as F

    images, labels = torch.randn(batch, 3, image_size, image_size), torch.randint(1000, (batch,))

    def step(model: Any) -> Side:
        optimiser = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)

        def once() -> None:
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()

        return calls(once, repeat=2)

    ours, other = map(step, vit_pair(image_size))
    return ours, other


def vit_loop(model: str, batch: int = 8, steps: int = 2) -> tuple[Side, Side]:
    """The same steps as a `pretrain` stage takes them with one of our models, against timm's model in a bare loop."""
    import timm
    import torch
    from torch.nn import functional as F

    import provenzoo
    from provenzoo.datasets.base import Split
    from provenzoo.training.feed import Feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas

    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    replicas = Replicas([provenzoo.create_model(model, channels=3, num_classes=1000)], [0])
    feed = Feed([Split(images, labels)], [0], batch)
    settings = read_optim({"name": "adamw", "lr": 1e-3, "decay_vectors": True}, "optim")
    theirs = timm.create_model("vit_tiny_patch16_224").train()

    def bare_loop() -> None:
        optimiser = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        for _ in range(steps):
            optimiser.zero_grad()
            F.cross_entropy(theirs(images), labels).backward()
            optimiser.step()

    return calls(lambda: train(replicas, feed, F.cross_entropy, settings, steps)), calls(bare_loop)


def vit_inference(image_size: int, batch: int) -> tuple[Side, Side]:
    """Logits of random images in eval mode; ours computes its scores once a checkpoint."""
    import torch

    images = torch.randn(batch, 3, image_size, image_size)

    def forward(model: Any) -> Side:
        model.eval()
        return calls(torch.inference_mode()(lambda: model(images)), repeat=4)

    ours, other = map(forward, vit_pair(image_size))
    return ours, other


ROWS: Rows = {
    "our loop, vit-tiny-patch16-224 / bare loop, timm's": (
        lambda: vit_loop("vit-tiny-patch16-224"),
        at_least(0.97),
    ),
    "our loop, positional-vit-tiny-patch16-224 / bare loop, timm's": (
        lambda: vit_loop("positional-vit-tiny-patch16-224"),
        at_least(1.2),
    ),
    "positional / vanilla ViT-Ti/16 at 224, training": (lambda: vit_training(224, 8), at_least(1.2)),
    "positional / vanilla ViT-Ti/16 at 224, inference": (lambda: vit_inference(224, 8), at_least(1.2)),
    "positional / vanilla ViT-Ti/16 at 512, training": (lambda: vit_training(512, 2), at_least(None)),
    "positional / vanilla ViT-Ti/16 at 512, inference": (lambda: vit_inference(512, 2), at_least(None)),
}
