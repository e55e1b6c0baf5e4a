"""The samples a second that a GPU can train on: timed on synthetic data, in the measuring child.

The network has the blocks and widths of a ResNet-50 (He et al., 2015), about the size of most image
models. It stands in for the user's own model, whose rate ``--gpu-rate`` gives better.
"""

from __future__ import annotations

import time
from typing import Any

_WIDTHS = ((64, 3), (128, 4), (256, 6), (512, 3))
_WARM_UP_STEPS = 3
# Steps between two synchronisations, which a training does not need after each step.
_STEPS_AT_ONCE = 8


def time_steps(device: str, batch_size: int, side: int, seconds: float) -> dict[str, Any]:
    """Return ``samples_per_s`` of forward, backward and update on ``device``, and how it was taken.

    Uses half precision (autocast) if the device is a GPU. Takes about ``seconds`` after a warm-up.
    """
    import torch

    on_gpu = torch.device(device).type == "cuda"
    # As in a training tuned for speed (NVIDIA recommends it for convolutions on tensor cores).
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    network = _resnet50().to(device, memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    images = torch.rand(batch_size, 3, side, side, device=device).to(memory_format=layout)
    labels = torch.zeros(batch_size, dtype=torch.long, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", enabled=on_gpu):
            loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def settle() -> None:
        if on_gpu:
            torch.cuda.synchronize(device)

    for _ in range(_WARM_UP_STEPS if on_gpu else 1):
        step()
    settle()
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(_STEPS_AT_ONCE if on_gpu else 1):
            step()
            steps += 1
        settle()
    elapsed = time.perf_counter() - begin
    name = torch.cuda.get_device_name(device) if on_gpu else "the CPU"
    return {
        "samples_per_s": steps * batch_size / elapsed,
        "steps": steps,
        "batch_size": batch_size,
        "side": side,
        "device": name,
        "network": "ResNet-50, mixed precision" if on_gpu else "ResNet-50",
    }


def _resnet50() -> Any:
    from torch import nn

    layers: list[Any] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    inner = 64
    for width, count in _WIDTHS:
        for number in range(count):
            stride = 2 if number == 0 and width > 64 else 1
            layers.append(_bottleneck(inner, width, stride))
            inner = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)]
    return nn.Sequential(*layers)


def _bottleneck(inner: int, width: int, stride: int) -> Any:
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            outer = 4 * width
            self.main = nn.Sequential(
                nn.Conv2d(inner, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, outer, 1, bias=False),
                nn.BatchNorm2d(outer),
            )
            self.short: Any = nn.Identity()
            if stride != 1 or inner != outer:
                self.short = nn.Sequential(
                    nn.Conv2d(inner, outer, 1, stride=stride, bias=False), nn.BatchNorm2d(outer)
                )
            self.end = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.end(self.main(x) + self.short(x))

    return Bottleneck()
