#!/usr/bin/env python3
"""Measures PyTorch's DataLoader: reads images FOLDER/CLASS/NAME.jpg into uint8 batches [N, H, W, 3]. Used by `loader`.

--decoder is pil, torchvision (decode_jpeg and transforms.v2) or turbojpeg (PyTurboJPEG, then as pil). Prints one JSON
object. The first epoch is not counted; epochs follow without a break.
"""
import argparse
import json
import pathlib
import time


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--decoder", choices=["pil", "torchvision", "turbojpeg"], default="pil")
    p.add_argument("--transform", choices=["resized_crop", "padded_crop"], default="resized_crop")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=4, help="number of measured epochs")
    return p.parse_args()


if __name__ == "__main__":
    a = parse_arguments()  # before importing optional packages

import numpy
import PIL.Image
import torch
import torchvision
from torchvision.transforms import v2


class Images(torch.utils.data.Dataset):
    def __init__(self, folder, decoder, transform):
        classes = sorted(p.name for p in folder.iterdir())
        self.files = [(str(p), label) for label, name in enumerate(classes) for p in sorted((folder / name).iterdir())]
        self.decoder, self.transform, self.turbo = decoder, transform, None

    def __len__(self):
        return len(self.files)

    def decode(self, file):
        if self.decoder == "pil":
            with PIL.Image.open(file) as image:
                return image.convert("RGB")
        if self.decoder == "torchvision":
            mode = torchvision.io.ImageReadMode.RGB
            return torchvision.io.decode_jpeg(torchvision.io.read_file(file), mode=mode)
        if self.turbo is None:  # created in the worker
            import turbojpeg
            self.turbo = turbojpeg.TurboJPEG()
        return PIL.Image.fromarray(self.turbo.decode(pathlib.Path(file).read_bytes(), pixel_format=0))

    def __getitem__(self, index):
        file, label = self.files[index]
        image = self.transform(self.decode(file))
        if isinstance(image, torch.Tensor):
            return image.permute(1, 2, 0).contiguous(), label
        return torch.from_numpy(numpy.array(image)), label


class Epochs(torch.utils.data.Sampler):
    """Random permutations in sequence, so that workers do not wait for each other between epochs."""

    def __init__(self, size, epochs):
        self.size, self.epochs = size, epochs

    def __len__(self):
        return self.size * self.epochs

    def __iter__(self):
        for _ in range(self.epochs):
            yield from torch.randperm(self.size).tolist()


def main(a):
    if a.transform == "resized_crop":
        crop, shape = v2.RandomResizedCrop(224, antialias=True), (224, 224, 3)
    else:
        crop, shape = v2.RandomCrop(32, padding=4), (32, 32, 3)
    images = Images(a.folder, a.decoder, v2.Compose([crop, v2.RandomHorizontalFlip()]))
    loader = torch.utils.data.DataLoader(
        images, batch_size=a.batch, sampler=Epochs(len(images), a.epochs + 1), num_workers=a.workers,
        persistent_workers=a.workers > 0, prefetch_factor=2 if a.workers else None)
    seen, counted, began = 0, 0, None
    for batch, _ in loader:
        assert batch.dtype == torch.uint8 and tuple(batch.shape[1:]) == shape, batch.shape
        if began is not None:
            counted += len(batch)
        seen += len(batch)
        if began is None and seen >= len(images):
            began = time.perf_counter()
    seconds = time.perf_counter() - began
    print(json.dumps({"peer": f"pytorch {torch.__version__}, torchvision {torchvision.__version__}", "decoder": a.decoder,
                      "samples": len(images), "workers": a.workers, "samples_per_second": counted / seconds}))


if __name__ == "__main__":
    main(a)
