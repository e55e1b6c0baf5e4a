"""The step of the training: ResNet-18 in bfloat16 with SGD, in plain torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.training.images import CLASSES

Step = Callable[[torch.Tensor, torch.Tensor], None]


class Block(nn.Module):
    """Two convolutions of 3 x 3 beside a shortcut (He et al., 2015, figure 2)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet18() -> nn.Module:
    """Return ResNet-18 (He et al., 2015, table 1) for 224 x 224 images of ``CLASSES`` classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def make_step(device: torch.device) -> Step:
    """Return one step of the training: uint8 images and classes on the device, weights updated."""
    model = resnet18().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16):
            found = loss(model((images - 128) / 64), labels)
        optimizer.zero_grad(set_to_none=True)
        found.backward()
        optimizer.step()

    return step
