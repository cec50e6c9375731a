#!/usr/bin/env python3
"""Prints the logits of torchvision's ResNet-18 in PyTorch, with weights that are a function of name and index. The
numbers are in tests/trainer/pretrained_test.cc. Needs torch and torchvision; created with torch 2.15."""

import argparse

argparse.ArgumentParser(description=__doc__).parse_args()  # before importing optional packages

import numpy
import torch
import torchvision


def uniform(name, count):
    """Returns numbers in [0, 1), equal to those of uniform() in the test."""
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
