#!/usr/bin/env python3
"""Writes encoder_losses.json: the losses of the first steps of bert-mini (masked language modeling of sequences with
padding) and vit-tiny in transformers, from weights and on samples that are a function of name and index.

    tests/golden/make_encoder_losses.py

tests/launch/encoder_test.cc trains the same in Trireme. The masks are computed as data/masked_tokens.cc does.
Created with PyTorch 2.15 and transformers 5.24.
"""
import argparse
import json
import pathlib

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

import numpy  # noqa: E402
import torch  # noqa: E402
from transformers import BertConfig, BertForMaskedLM, ViTConfig, ViTForImageClassification  # noqa: E402

STEPS, BATCH, RATE, DECAY, SEED = 20, 8, 0.001, 0.05, 1
VOCAB, LENGTH, MASK, IGNORED = 96, 32, 95, -100
SIDE, PATCH, CLASSES = 32, 8, 10
PURPOSE_MASK = 8  # RandomPurpose::kMask


def uniform(name, count):
    """Returns numbers in [0, 1), equal to those of tests/golden/formula.h."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 % 2**32
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + state) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> numpy.uint64(shift)
        x = x * factor & 0xFFFFFFFF
    x ^= x >> numpy.uint64(16)
    return x.astype(numpy.float64) / 2**32


def weight(name, shape, around_one):
    u = uniform(name, int(numpy.prod(shape))).reshape(shape)
    return 1 + 0.2 * (u - 0.5) if around_one else 0.1 * (u - 0.5)


def mix64(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def philox(index, purpose, stream):
    """Returns the four 32-bit numbers of core/random.h at this index."""
    key = mix64(SEED ^ purpose << 56)
    k = [key % 2**32, key >> 32]
    c = [index % 2**32, index >> 32, stream % 2**32, stream >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def number(bits):
    return (bits >> 8) / 2**24


def sequences():
    """Returns STEPS * BATCH rows of tokens from 2 on, of which each token follows from the two before, except for some.
    Rows end with padding (0)."""
    noise = uniform("tokens", STEPS * BATCH * LENGTH).reshape(-1, LENGTH)
    rows = numpy.zeros_like(noise, dtype=numpy.int64)
    for row, numbers in enumerate(noise):
        for t in range(LENGTH - row % 5 * 4):
            follows = t > 1 and numbers[t] > 0.2
            rows[row, t] = (rows[row, t - 1] + rows[row, t - 2]) % 40 + 2 if follows else int(numbers[t] * 90) + 2
    return rows


def masked(rows):
    """Returns inputs and labels."""
    inputs, labels = rows.copy(), numpy.full_like(rows, IGNORED)
    for row, t in numpy.argwhere(rows != 0):
        r = philox(int(row) * LENGTH + int(t), PURPOSE_MASK, 0)
        if number(r[0]) >= numpy.float32(0.15):
            continue
        labels[row, t] = rows[row, t]
        share = number(r[1])
        if share < numpy.float32(0.8):
            inputs[row, t] = MASK
        elif share < numpy.float32(0.8) + numpy.float32(0.1):
            inputs[row, t] = r[2] % VOCAB or rows[row, t]
    return inputs, labels


def images():
    """Returns STEPS * BATCH images of bytes [N, C, H, W], brighter with the label, and labels."""
    noise = uniform("images", STEPS * BATCH * SIDE * SIDE * 3).reshape(-1, SIDE, SIDE, 3)  # as they are stored
    labels = numpy.arange(len(noise)) * 7 % CLASSES
    pixels = numpy.floor(noise * 100 + labels[:, None, None, None] * 15).astype(numpy.uint8)
    return pixels.transpose(0, 3, 1, 2), labels


def bert_name(name):
    """Returns Trireme's name of a parameter, and which third of its rows this is."""
    name = name.removeprefix("bert.")
    for theirs, ours in (("word_embeddings.weight", "weight"), ("position_embeddings.weight", "position"),
                         ("token_type_embeddings.weight", "segment")):
        name = name.replace("embeddings." + theirs, "embeddings." + ours)
    for third, part in enumerate(("query", "key", "value")):
        if f".self.{part}." in name:
            return name.replace(part, "qkv"), third
    return name, None


def vit_name(name):
    name = name.removeprefix("vit.")
    for theirs, ours in (("embeddings.cls_token", "embed.token"), ("embeddings.position_embeddings", "embed.position"),
                         ("embeddings.patch_embeddings.projection", "patch_embed.proj"), ("layers.", "blocks."),
                         ("layernorm_before", "norm1"), ("layernorm_after", "norm2"), ("layernorm", "norm"),
                         ("attention.o_proj", "attn.proj"), ("classifier", "head")):
        name = name.replace(theirs, ours)
    for third, part in enumerate(("q_proj", "k_proj", "v_proj")):
        if f".attention.{part}." in name:
            return name.replace("attention." + part, "attn.qkv"), third
    return name, None


def set_weights(model, name_of):
    """Sets the parameters and returns those with and without weight decay, as in Trireme."""
    groups = {True: [], False: []}
    for theirs, parameter in model.named_parameters():
        ours, third = name_of(theirs)
        shape = list(parameter.shape)
        norm = "norm" in ours.lower()
        if third is not None:
            shape[0] *= 3
        values = weight(ours, shape, norm and ours.endswith("weight"))
        if third is not None:
            values = numpy.split(values, 3)[third]
        parameter.data = torch.tensor(values, dtype=torch.float32)
        groups[not (norm or ours.endswith("bias") or ours.startswith("embed."))].append(parameter)
    return groups


def losses(model, name_of, loss_of):
    model.train()
    groups = set_weights(model, name_of)
    optimizer = torch.optim.AdamW([{"params": groups[True], "weight_decay": DECAY},
                                   {"params": groups[False], "weight_decay": 0}], lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    found = []
    for step in range(STEPS):
        loss = loss_of(slice(step * BATCH, (step + 1) * BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        found.append(loss.item())
    return found


def bert_losses():
    config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=VOCAB,
                        max_position_embeddings=LENGTH, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = BertForMaskedLM(config)
    rows = sequences()
    inputs, labels = (torch.tensor(values) for values in masked(rows))
    attended = torch.tensor(rows != 0).long()
    return losses(model, bert_name, lambda part: model(
        input_ids=inputs[part], attention_mask=attended[part], labels=labels[part]).loss)


def vit_losses():
    config = ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, image_size=SIDE,
                       patch_size=PATCH, num_labels=CLASSES, layer_norm_eps=1e-6, hidden_dropout_prob=0,
                       attention_probs_dropout_prob=0)
    model = ViTForImageClassification(config)
    pixels, labels = images()
    inputs = torch.tensor((pixels / 255 - 0.5) / 0.25, dtype=torch.float32)
    return losses(model, vit_name, lambda part: torch.nn.functional.cross_entropy(
        model(pixel_values=inputs[part]).logits, torch.tensor(labels[part])))


def main():
    torch.manual_seed(1)
    found = {"bert-mini": bert_losses(), "vit-tiny": vit_losses()}
    path = pathlib.Path(__file__).with_name("encoder_losses.json")
    path.write_text(json.dumps(found, indent=1) + "\n")
    for name, values in found.items():
        print(name, " ".join(f"{value:.5f}" for value in values))


if __name__ == "__main__":
    main()
