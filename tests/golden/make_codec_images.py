#!/usr/bin/env python3
"""Creates tests/golden/codec: small images in many formats, and the pixels that Pillow decodes from them.

rgb/NAME.png and gray/NAME.png are the expected results for NAME. Needs Pillow and NumPy; the tests do not need this
script.
"""
import argparse
import pathlib
import shutil

argparse.ArgumentParser(description=__doc__).parse_args()  # before importing optional packages

import numpy as np
from PIL import Image, ImageOps

FOLDER = pathlib.Path(__file__).parent / "codec"
HEIGHT, WIDTH = 19, 27


def image():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    red = 255 * x / WIDTH
    green = 127 + 127 * np.sin(y / 3 + x / 5)
    blue = np.where((x // 6 + y // 5) % 2 == 0, 230, 20)
    return Image.fromarray(np.stack([red, green, blue], axis=-1).astype(np.uint8))


def save_jpegs(rgb):
    for name, subsampling in (("444", "4:4:4"), ("422", "4:2:2"), ("420", "4:2:0")):
        rgb.save(FOLDER / f"{name}.jpg", quality=90, subsampling=subsampling)
    rgb.save(FOLDER / "progressive.jpg", quality=90, progressive=True)
    rgb.save(FOLDER / "rgb.jpg", quality=90, keep_rgb=True)
    rgb.convert("L").save(FOLDER / "gray.jpg", quality=90)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    inks = [255 * x / WIDTH, 255 * y / HEIGHT, (x * y) % 256, (5 * x + 3 * y) % 128]
    cmyk = Image.fromarray(np.stack(inks, axis=-1).astype(np.uint8), "CMYK")
    cmyk.save(FOLDER / "cmyk.jpg", quality=90)
    # The same data with an Adobe marker that declares it as YCCK.
    data = bytearray((FOLDER / "cmyk.jpg").read_bytes())
    data[data.index(b"Adobe") + 11] = 2
    (FOLDER / "ycck.jpg").write_bytes(data)


def save_pngs(rgb):
    alpha = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    rgb.save(FOLDER / "rgb.png")
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    rgba.save(FOLDER / "rgba.png")
    rgba.convert("LA").save(FOLDER / "gray-alpha.png")
    rgb.convert("L").save(FOLDER / "gray.png")
    rgb.convert("1").save(FOLDER / "1-bit.png")
    rgb.quantize(200).save(FOLDER / "palette.png", transparency=3)
    rgb.quantize(4).save(FOLDER / "2-bit-palette.png", bits=2)


def save_oriented(rgb):
    small = rgb.crop((0, 0, 11, 7))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        small.save(FOLDER / f"orientation-{orientation}.jpg", quality=90, exif=exif)
        small.save(FOLDER / f"orientation-{orientation}.png", exif=exif)


def save_expected(path):
    ImageOps.exif_transpose(Image.open(path)).convert("RGB").save(FOLDER / "rgb" / f"{path.name}.png")
    gray = Image.open(path)
    gray.draft("L", None)  # a JPEG's own luma
    gray = ImageOps.exif_transpose(gray)
    if gray.mode in ("CMYK", "P"):
        gray = gray.convert("RGB")
    gray.convert("L").save(FOLDER / "gray" / f"{path.name}.png")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    for folder in (FOLDER, FOLDER / "rgb", FOLDER / "gray"):
        folder.mkdir()
    rgb = image()
    save_jpegs(rgb)
    save_pngs(rgb)
    save_oriented(rgb)
    for path in sorted(FOLDER.glob("*.*")):
        save_expected(path)


if __name__ == "__main__":
    main()
