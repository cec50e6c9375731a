#!/usr/bin/env python3
"""Writes images.gz: small images processed by Pillow and torchvision, for tests of data/images and data/transforms.

Created with Pillow 12.0.0, torchvision 0.29.2 and NumPy 2.4. Pillow 13 cannot be used: it resizes some images
vertically first, which changes the rounding. Each entry is a line "NAME CHANNELS HEIGHT WIDTH", followed by the pixels,
rows from the top.
"""
import argparse
import gzip
import math
import pathlib

argparse.ArgumentParser(description=__doc__).parse_args()  # before importing optional packages

import numpy
import PIL
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

assert int(PIL.__version__.split(".")[0]) < 13, "Pillow 13 resizes in another order"

out = gzip.GzipFile(pathlib.Path(__file__).with_name("images.gz"), "wb", mtime=0)


def write(name, image):
    pixels = numpy.asarray(image)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    out.write(f"{name} {channels} {pixels.shape[0]} {pixels.shape[1]}\n".encode())
    out.write(pixels.tobytes())


def image(width, height, seed):
    """Returns an image with gradients, a bright disc and a dark bar, and noise on one half."""
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.default_rng(seed).integers(-40, 41, (height, width, 3))
    pixels = numpy.stack([x * 255 / width, y * 255 / height, (x + y) * 200 / (width + height)], -1)
    pixels[(x - width * 0.7) ** 2 + (y - height * 0.3) ** 2 < (height * 0.2) ** 2] = [255, 240, 10]
    pixels[abs(y - height * 0.8) < 2] = [0, 0, 30]
    pixels += noise * (x < width / 2)[..., None]
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))


def resizes(name, image):
    width, height = image.size
    write(name, image)
    filters = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
    # Box (left, top, right, bottom), width and height: smaller, larger, one axis only, fractions.
    cases = [
        ((0, 0, width, height), (24, 24)),
        ((5, 3, 41, 44), (50, 57)),
        ((0, 0, width, height), (width, 20)),
        ((0, 0, width, height), (20, height)),
        ((7.5, 2.25, 49.75, 40.5), (17, 31)),
        ((20, 10, 23, 12), (9, 7)),
    ]
    for i, (box, size) in enumerate(cases):
        # Only the pixels that the box touches are used.
        left, top = math.floor(box[0]), math.floor(box[1])
        part = image.crop((left, top, math.ceil(box[2]), math.ceil(box[3])))
        within = (box[0] - left, box[1] - top, box[2] - left, box[3] - top)
        for filter_name, filter in filters.items():
            write(f"{name}_{filter_name}_{i}", part.resize(size, filter, within))


def colors(name, image):
    write(name, image)
    for factor in 0.0, 0.6, 1.7:
        write(f"{name}_brightness_{factor}", F.adjust_brightness(image, factor))
        write(f"{name}_contrast_{factor}", F.adjust_contrast(image, factor))
        write(f"{name}_saturation_{factor}", F.adjust_saturation(image, factor))
        write(f"{name}_sharpness_{factor}", F.adjust_sharpness(image, factor))
    for turns in 0.0, 0.3, -0.11:
        write(f"{name}_hue_{turns}", F.adjust_hue(image, turns))
    write(f"{name}_gray", F.to_grayscale(image, len(image.getbands())))
    write(f"{name}_invert", F.invert(image))
    write(f"{name}_posterize_3", F.posterize(image, 3))
    write(f"{name}_solarize_128", F.solarize(image, 128))
    write(f"{name}_autocontrast", F.autocontrast(image))
    write(f"{name}_equalize", F.equalize(image))


def augmentations(name, image, space, step):
    """Writes the result of each operation at this magnitude, with both signs if it has a direction."""
    for operation, (magnitudes, signed) in space.items():
        magnitude = float(magnitudes[step]) if magnitudes.ndim > 0 else 0.0
        for sign in (1, -1) if signed else (1,):
            result = autoaugment._apply_op(image, operation, sign * magnitude, InterpolationMode.NEAREST, [77.0] * 3)
            write(f"{name}_{operation}_{'+' if sign > 0 else '-'}", result)


resizes("large", image(61, 47, 1))
resizes("large_gray", image(61, 47, 2).convert("L"))
colors("color", image(37, 29, 3))
colors("gray", image(37, 29, 4).convert("L"))
# A narrow range of values, so that autocontrast has an effect.
dull = Image.fromarray(60 + numpy.asarray(image(37, 29, 5)) // 3)
write("dull", dull)
write("dull_autocontrast", F.autocontrast(dull))
write("dull_equalize", F.equalize(dull))

small = image(25, 18, 6)
write("small", small)
augmentations("rand", small, autoaugment.RandAugment()._augmentation_space(31, (18, 25)), 9)
augmentations("trivial", small, autoaugment.TrivialAugmentWide()._augmentation_space(31), 15)
out.close()
