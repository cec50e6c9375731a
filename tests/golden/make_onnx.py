#!/usr/bin/env python3
"""Writes onnx/: a small torchvision ResNet, exported by both ONNX exporters of PyTorch, and its logits.

script.onnx is from the TorchScript exporter and has separate batch norms; dynamo.onnx is from
torch.onnx.export(dynamo=True), which folds them into the convolutions. inputs.f32 and logits.f32 are two samples, little-endian.
Created with PyTorch 2.15, torchvision 0.29.2, onnx 1.23.2 and onnxscript 0.7.2.
"""
import argparse
import pathlib

argparse.ArgumentParser(description=__doc__).parse_args()  # before importing optional packages

import torch
from torchvision.models.resnet import BasicBlock, ResNet

torch.manual_seed(3)
folder = pathlib.Path(__file__).with_name("onnx")
folder.mkdir(exist_ok=True)


class Small(ResNet):
    """Two stages, the second with a projection, and a GELU before the last layer, which ONNX exports as a formula."""

    def __init__(self):
        torch.nn.Module.__init__(self)
        self._norm_layer = torch.nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 6, 1, 1, 64
        self.conv1 = torch.nn.Conv2d(3, 6, 5, stride=2, padding=2, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(6)
        self.relu = torch.nn.ReLU()
        self.maxpool = torch.nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(BasicBlock, 6, 1)
        self.layer2 = self._make_layer(BasicBlock, 10, 1, stride=2)
        self.avgpool = torch.nn.AdaptiveAvgPool2d(1)
        self.hidden = torch.nn.Linear(10, 12)
        self.gelu = torch.nn.GELU()
        self.drop = torch.nn.Dropout()
        self.fc = torch.nn.Linear(12, 7)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(self.drop(self.gelu(self.hidden(x.view(x.size(0), -1)))))


model = Small().eval()
for module in model.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        torch.nn.init.normal_(module.running_mean, 0, 0.2)
        torch.nn.init.uniform_(module.running_var, 0.5, 2)
        torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        torch.nn.init.normal_(module.bias, 0, 0.2)
inputs = torch.randn(2, 3, 20, 20)
with torch.no_grad():
    logits = model(inputs)
inputs.numpy().tofile(folder / "inputs.f32")
logits.numpy().tofile(folder / "logits.f32")
torch.onnx.export(
    model,
    (inputs,),
    folder / "script.onnx",
    dynamo=False,
    training=torch.onnx.TrainingMode.PRESERVE,
    input_names=["input"],
    dynamic_axes={"input": {0: "N"}},
)
torch.onnx.export(
    model,
    (inputs,),
    folder / "dynamo.onnx",
    dynamo=True,
    external_data=False,
    dynamic_shapes=({0: torch.export.Dim("N")},),
)
