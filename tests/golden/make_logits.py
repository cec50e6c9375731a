#!/usr/bin/env python3
"""Prints what PyTorch computes with torchvision's ResNet-18 whose every value is a formula of its name and
place: the numbers in tests/trainer/pretrained_test.cc. Needs torch and torchvision; made with torch 2.15."""

import argparse

argparse.ArgumentParser(description=__doc__).parse_args()  # before what need not be installed

import numpy
import torch
import torchvision


def uniform(name, count):
    """Numbers in [0, 1), the same as `uniform` of the test."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 % 2**32
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + state) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> numpy.uint64(shift)
        x = x * factor & 0xFFFFFFFF
    x ^= x >> numpy.uint64(16)
    return x.astype(numpy.float64) / 2**32


def value(name, shape):
    u = uniform(name, int(numpy.prod(shape)))
    if len(shape) > 1:
        u = (2 * u - 1) * numpy.sqrt(6 * shape[0] / numpy.prod(shape))
    elif name.endswith(("weight", "running_var")):
        u = u + 0.5
    else:
        u = 0.2 * (u - 0.5)
    return torch.tensor(u.reshape(shape), dtype=torch.float32)


model = torchvision.models.resnet18(num_classes=10).eval()
model.load_state_dict({name: value(name, t.shape) if t.is_floating_point() else t for name, t in model.state_dict().items()})
images = torch.tensor(4 * uniform("input", 2 * 3 * 64 * 64) - 2, dtype=torch.float32).reshape(2, 3, 64, 64)
with torch.no_grad():
    for row in model.double()(images.double()):
        print(", ".join(f"{logit:.7g}f" for logit in row.tolist()))
