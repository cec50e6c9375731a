#!/usr/bin/env python3
"""Writes gpt2/ and llama/: decoders of transformers with random weights, sequences that they continue greedily, and their
logits.

    tests/golden/make_decoders.py [--full FOLDER]

config.json and model.safetensors are from save_pretrained(). Each line of tokens.txt is a prompt of 16 tokens followed
by 64 generated ones. logits.safetensors has the logits at each of them, computed in double precision. --full writes only
a GPT-2 with the size of 124M; launch_decoder_weights_test reads it instead of gpt2/ if TRIREME_GPT2 is the FOLDER.
Created with PyTorch 2.15 and transformers 5.24.
"""
import argparse
import pathlib


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER", help="write a network of the size of GPT-2 124M")
    return parser.parse_args()


OPTIONS = arguments()  # --help works without the packages

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

PROMPTS, PROMPT_LENGTH, GENERATED = 3, 16, 64
COMMON = {"vocab_size": 61, "bos_token_id": None, "eos_token_id": None}
GPT2 = GPT2Config(**COMMON, n_layer=2, n_embd=32, n_head=4, n_positions=PROMPT_LENGTH + GENERATED)
FULL_GPT2 = GPT2Config(bos_token_id=None, eos_token_id=None)
LLAMA = LlamaConfig(**COMMON, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                    intermediate_size=56, rms_norm_eps=1e-5, max_position_embeddings=PROMPT_LENGTH + GENERATED,
                    rope_parameters={"rope_type": "default", "rope_theta": 500.0})


def random_model(kind, config):
    """Returns a network without constant parameters, whose weights are so large that it does not repeat one token."""
    config.initializer_range = 2 / config.hidden_size**0.5
    model = kind(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1 if name.endswith("weight") else 0, 0.1)
    return model


def write(folder, kind, config):
    torch.manual_seed(1)
    model = random_model(kind, config)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    model.double()
    prompts = torch.randint(model.config.vocab_size, (PROMPTS, PROMPT_LENGTH))
    with torch.no_grad():
        mask = torch.ones_like(prompts)
        tokens = model.generate(prompts, attention_mask=mask, max_new_tokens=GENERATED, do_sample=False)
        logits = model(tokens).logits
    (folder / "tokens.txt").write_text("".join(" ".join(map(str, sequence)) + "\n" for sequence in tokens.tolist()))
    save_file({"logits": logits.float()}, folder / "logits.safetensors")
    best = logits[:, PROMPT_LENGTH - 1:-1].topk(2).values
    gap = (best[..., 0] - best[..., 1]).min()
    print(f"{folder.name}: logits up to {logits.abs().max():.3g}; the two largest of a generated token differ by at least {gap:.1e}")


if __name__ == "__main__":
    if OPTIONS.full:
        write(OPTIONS.full, GPT2LMHeadModel, FULL_GPT2)
    else:
        write(pathlib.Path(__file__).with_name("gpt2"), GPT2LMHeadModel, GPT2)
        write(pathlib.Path(__file__).with_name("llama"), LlamaForCausalLM, LLAMA)
