#!/usr/bin/env python3
"""Trains a language model of the zoo in Trireme and in PyTorch, from the same weights on the same batches, and compares
the losses of the first steps (AdamW, clipping, warmup and cosine schedule, FP32).

    tests/bench/torch_losses.py gpt-mini|llama-mini|lstm TEXT [--trireme PATH] [--steps 20] [--batch 8]

TEXT is a file for data.text. Needs PyTorch and NumPy. Exits with 1 if a loss differs by more than 1e-4.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("gpt-mini", "llama-mini", "lstm"))
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--trireme", default="build/release/bin/trireme")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    return parser.parse_args()


OPTIONS = arguments()  # --help works without the packages

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

LENGTH, BLOCKS, WIDTH, HEADS, EPSILON = 256, 6, 384, 6, 1e-5
KV_HEADS = 2  # of llama-mini
FEATURES = 1024  # of its MLP
LSTM_WIDTH, LSTM_LAYERS = 256, 2
DECAY = 0.1


def gpt_shapes(vocab):
    shapes = {"wte.weight": (vocab, WIDTH), "wte.position": (LENGTH, WIDTH)}
    for i in range(BLOCKS):
        for name, rows, columns in (("attn.c_attn", 3 * WIDTH, WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", 4 * WIDTH, WIDTH), ("mlp.c_proj", WIDTH, 4 * WIDTH)):
            shapes[f"h.{i}.{name}.weight"] = (rows, columns)
            shapes[f"h.{i}.{name}.bias"] = (rows,)
        for name in (f"h.{i}.ln_1", f"h.{i}.ln_2"):
            shapes[name + ".weight"] = shapes[name + ".bias"] = (WIDTH,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (WIDTH,)
    return shapes


def llama_shapes(vocab):
    head = WIDTH // HEADS
    shapes = {"embed_tokens.weight": (vocab, WIDTH), "lm_head.weight": (vocab, WIDTH), "norm.weight": (WIDTH,)}
    for i in range(BLOCKS):
        block = f"layers.{i}."
        shapes[block + "self_attn.qkv_proj.weight"] = ((HEADS + 2 * KV_HEADS) * head, WIDTH)
        shapes[block + "self_attn.o_proj.weight"] = (WIDTH, WIDTH)
        shapes[block + "mlp.gate_up_proj.weight"] = (2 * FEATURES, WIDTH)
        shapes[block + "mlp.down_proj.weight"] = (WIDTH, FEATURES)
        shapes[block + "input_layernorm.weight"] = shapes[block + "post_attention_layernorm.weight"] = (WIDTH,)
    return shapes


def lstm_shapes(vocab):
    shapes = {"encoder.weight": (vocab, LSTM_WIDTH), "decoder.weight": (vocab, LSTM_WIDTH), "decoder.bias": (vocab,)}
    for name, value in torch.nn.LSTM(LSTM_WIDTH, LSTM_WIDTH, LSTM_LAYERS).named_parameters():
        shapes[f"rnn.{name}"] = tuple(value.shape)
    return shapes


SHAPES = {"gpt-mini": gpt_shapes, "llama-mini": llama_shapes, "lstm": lstm_shapes}


def is_norm(name):
    return ".ln_" in name or name.startswith("ln_") or "norm" in name


def initial(shapes):
    random = np.random.default_rng(1)
    values = {}
    for name, shape in shapes.items():
        noise = random.normal(0, 0.02, shape)
        values[name] = (noise + (1 if is_norm(name) and name.endswith("weight") else 0)).astype(np.float32)
    return values


def write_safetensors(path, tensors):
    header, parts, end = {}, [], 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [begin, end]}
        parts.append(values.tobytes())
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, float("-inf")).softmax(-1) @ v


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merged(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def gpt(p, tokens):
    def linear(x, name):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], EPSILON)

    x = p["wte.weight"][tokens] + p["wte.position"]
    for i in range(BLOCKS):
        q, k, v = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(WIDTH, 2)
        x = x + linear(merged(attend(*(heads_of(t, HEADS) for t in (q, k, v)))), f"h.{i}.attn.c_proj")
        up = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        x = x + linear(F.gelu(up, approximate="tanh"), f"h.{i}.mlp.c_proj")
    return F.linear(norm(x, "ln_f"), p["wte.weight"])


def rotated(x):
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(LENGTH), 10000.0 ** (-torch.arange(half) / half))
    cos, sin, a, b = angles.cos(), angles.sin(), x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def llama(p, tokens):
    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * p[name + ".weight"]

    head = WIDTH // HEADS
    x = p["embed_tokens.weight"][tokens]
    for i in range(BLOCKS):
        block = f"layers.{i}."
        qkv = F.linear(norm(x, block + "input_layernorm"), p[block + "self_attn.qkv_proj.weight"])
        q, k, v = qkv.split((HEADS * head, KV_HEADS * head, KV_HEADS * head), 2)
        k, v = (heads_of(t, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        y = attend(rotated(heads_of(q, HEADS)), rotated(k), v)
        x = x + F.linear(merged(y), p[block + "self_attn.o_proj.weight"])
        up = F.linear(norm(x, block + "post_attention_layernorm"), p[block + "mlp.gate_up_proj.weight"])
        gate, value = up.split(FEATURES, 2)
        x = x + F.linear(F.silu(gate) * value, p[block + "mlp.down_proj.weight"])
    return F.linear(norm(x, "norm"), p["lm_head.weight"])


RNN = torch.nn.LSTM(LSTM_WIDTH, LSTM_WIDTH, LSTM_LAYERS, batch_first=True)


def lstm(p, tokens):
    of_rnn = {name.removeprefix("rnn."): value for name, value in p.items() if name.startswith("rnn.")}
    y, _ = torch.func.functional_call(RNN, of_rnn, p["encoder.weight"][tokens])
    return F.linear(y, p["decoder.weight"], p["decoder.bias"])


NETWORKS = {"gpt-mini": gpt, "llama-mini": llama, "lstm": lstm}


def train_in_trireme(options, weights, folder):
    write_safetensors(folder / "initial.safetensors", weights)
    (folder / "run.txtpb").write_text(f"""
      model {{ zoo {{ name: "{options.model}" }} init_from: "{folder}/initial.safetensors" }}
      data {{ text {{ train_file: "{options.text.resolve()}" length: {LENGTH} }} holdout: 0.1 shuffle: false }}
      batch {{ global: {options.batch} }}
      train {{ epochs: 1 max_steps: {options.steps} clip_norm: 1 }}
      optimizer {{ adamw {{ beta1: 0.9 beta2: 0.95 epsilon: 1e-8 }} weight_decay: {DECAY} }}
      schedule {{ learning_rate: 0.001 cosine {{ min_learning_rate: 0.0001 }} warmup {{ steps: 5 }} }}
    """)
    command = [options.trireme, "train", folder / "run.txtpb", "--run-dir", folder / "run", "--device", "cpu"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (folder / "run/metrics.jsonl").open()]
    return [record for record in records if record["event"] == "step"]


def train_in_torch(options, weights, rates):
    text = options.text.read_text()
    numbers = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([numbers[character] for character in text])
    parameters = {name: torch.tensor(values, requires_grad=True) for name, values in weights.items()}
    weights_of = {decays: [value for name, value in parameters.items()
                           if decays != (is_norm(name) or ".bias" in name)] for decays in (True, False)}
    optimizer = torch.optim.AdamW([{"params": weights_of[True], "weight_decay": DECAY},
                                   {"params": weights_of[False], "weight_decay": 0}], betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step, rate in enumerate(rates):
        windows = [(step * options.batch + row) * LENGTH for row in range(options.batch)]
        inputs = torch.stack([tokens[begin:begin + LENGTH] for begin in windows])
        targets = torch.stack([tokens[begin + 1:begin + LENGTH + 1] for begin in windows])
        loss = F.cross_entropy(NETWORKS[options.model](parameters, inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(options):
    vocab = len(set(options.text.read_text()))
    weights = initial(SHAPES[options.model](vocab))
    with tempfile.TemporaryDirectory() as folder:
        records = train_in_trireme(options, weights, pathlib.Path(folder))
    losses = train_in_torch(options, weights, [record["learning_rate"] for record in records])
    worst = 0
    for record, loss in zip(records, losses):
        difference = abs(record["train_loss"] - loss) / loss
        worst = max(worst, difference)
        print(f"step {record['step']:3}  Trireme {record['train_loss']:.6f}  PyTorch {loss:.6f}  {difference:.1e}")
    print(f"largest relative difference: {worst:.1e}")
    return 0 if len(records) == options.steps and worst <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
