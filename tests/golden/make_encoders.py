#!/usr/bin/env python3
"""Writes encoders/: encoders of transformers with random weights, inputs, and their logits.

    tests/golden/make_encoders.py

NAME/config.json and NAME/model.safetensors are from save_pretrained(), inputs.safetensors has the images and the tokens
(rows end with padding, 0, and have two segments, which end with 3), and logits.safetensors the logits of each network,
computed in double precision. Created with PyTorch 2.15 and transformers 5.24.
"""
import argparse
import pathlib

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig, BertForMaskedLM, BertForSequenceClassification, ViTConfig, ViTForImageClassification)

FOLDER = pathlib.Path(__file__).with_name("encoders")
ROWS, LENGTH, VOCAB, PADDING, SEGMENT_END = 3, 20, 37, 0, 3
COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
BERT = BertConfig(**COMMON, vocab_size=VOCAB, max_position_embeddings=LENGTH, num_labels=4, pad_token_id=PADDING)
VIT = ViTConfig(**COMMON, image_size=12, patch_size=4, num_labels=5, layer_norm_eps=1e-6)
NETWORKS = {"bert": (BertForSequenceClassification, BERT), "bert-mlm": (BertForMaskedLM, BERT),
            "vit": (ViTForImageClassification, VIT)}


def random_model(kind, config):
    """Returns a network without constant parameters, whose logits differ from row to row."""
    config.initializer_range = 3 / config.hidden_size**0.5
    model = kind(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1 if "norm" in name.lower() and name.endswith("weight") else 0, 0.1)
    return model


def random_tokens():
    """Returns rows of decreasing length with two segments, and what transformers reads beside them."""
    tokens = torch.randint(SEGMENT_END + 1, VOCAB, (ROWS, LENGTH))
    for row in range(ROWS):
        tokens[row, 6 + row] = tokens[row, LENGTH - 4 * row - 1] = SEGMENT_END
        tokens[row, LENGTH - 4 * row:] = PADDING
    ends = (tokens == SEGMENT_END).long()
    return {"input_ids": tokens, "attention_mask": (tokens != PADDING).long(),
            "token_type_ids": (ends.cumsum(1) - ends).clamp(max=1)}


def main():
    torch.manual_seed(1)
    images = torch.rand(ROWS, 3, VIT.image_size, VIT.image_size)
    inputs = {"bert": random_tokens(), "vit": {"pixel_values": images}}
    logits = {}
    for name, (kind, config) in NETWORKS.items():
        model = random_model(kind, config)
        model.save_pretrained(FOLDER / name)
        generation = FOLDER / name / "generation_config.json"
        generation.unlink(missing_ok=True)
        read = {key: value.double() if value.is_floating_point() else value
                for key, value in inputs[name.split("-")[0]].items()}
        with torch.no_grad():
            logits[name] = model.double()(**read).logits.float().contiguous()
        print(f"{name}: logits up to {logits[name].abs().max():.3g}")
    save_file({"images": images, "tokens": inputs["bert"]["input_ids"].float()}, FOLDER / "inputs.safetensors")
    save_file(logits, FOLDER / "logits.safetensors")


if __name__ == "__main__":
    main()
