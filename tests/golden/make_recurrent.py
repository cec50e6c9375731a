#!/usr/bin/env python3
"""Writes recurrent/: language models of torch.nn.LSTM and torch.nn.GRU, as state_dict() holds them, and the losses of
their first 20 steps of training.

    tests/golden/make_recurrent.py

text.txt has 20 batches of 4 windows of 16 characters, in this order, and one more character. losses.json has the losses
of each network, in double precision. Stateful networks begin with the weights of the others; each row of a batch reads
a quarter of the text, and the state is carried from window to window, without gradient. For "documents", it is 0 after
a space, the end of a document. Created with PyTorch 2.15.
"""
import argparse
import json
import pathlib

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

STEPS, BATCH, LENGTH = 20, 4, 16
EMBEDDING, HIDDEN, LAYERS = 6, 10, 2
RATE, MOMENTUM = 0.5, 0.75
WORDS = "to be or not that is the question whether tis nobler in mind suffer slings and arrows of fortune".split()


def make_text():
    text = ""
    while len(text) <= STEPS * BATCH * LENGTH:
        text += WORDS[torch.randint(len(WORDS), ())] + " "
    return text[:STEPS * BATCH * LENGTH + 1]


class LanguageModel(torch.nn.Module):
    def __init__(self, vocabulary, cell, bidirectional):
        super().__init__()
        self.encoder = torch.nn.Embedding(vocabulary, EMBEDDING)
        self.rnn = cell(EMBEDDING, HIDDEN, LAYERS, batch_first=True, bidirectional=bidirectional)
        self.decoder = torch.nn.Linear(HIDDEN * (2 if bidirectional else 1), vocabulary)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])

    def continued(self, tokens, state, document_end):
        """Returns the logits and the state after the tokens."""
        outputs = []
        for t in range(tokens.shape[1]):
            output, state = self.rnn(self.encoder(tokens[:, t:t + 1]), state)
            outputs.append(output)
            if document_end is None:
                continue
            same = (tokens[:, t] != document_end).double()[None, :, None]
            state = tuple(part * same for part in state) if isinstance(state, tuple) else state * same
        return self.decoder(torch.cat(outputs, dim=1)), state


def batches_in_order(tokens):
    for begin in range(0, STEPS * BATCH * LENGTH, BATCH * LENGTH):
        yield (tokens[first:first + BATCH * LENGTH].view(BATCH, LENGTH) for first in (begin, begin + 1))


def batches_of_rows(tokens):
    inputs, targets = (tokens[first:first + STEPS * BATCH * LENGTH].view(BATCH, STEPS, LENGTH) for first in (0, 1))
    for step in range(STEPS):
        yield inputs[:, step], targets[:, step]


def detached(state):
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()


def train(model, tokens, stateful=False, document_end=None):
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses, state = [], None
    for inputs, targets in batches_of_rows(tokens) if stateful else batches_in_order(tokens):
        if stateful:
            logits, state = model.continued(inputs, state, document_end)
            state = detached(state)
        else:
            logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(folder):
    torch.manual_seed(1)
    folder.mkdir(exist_ok=True)
    text = make_text()
    (folder / "text.txt").write_text(text)
    characters = sorted(set(text))
    tokens = torch.tensor([characters.index(character) for character in text])
    losses = {}
    for name, cell in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        for bidirectional in (False, True):
            model = LanguageModel(len(characters), cell, bidirectional)
            case = name + ("-bidirectional" if bidirectional else "")
            save_file(model.state_dict(), folder / f"{case}.safetensors")
            losses[case] = train(model, tokens)
        for kind, document_end in (("stateful", None), ("documents", characters.index(" "))):
            with torch.random.fork_rng():
                model = LanguageModel(len(characters), cell, False)
            model.load_state_dict(load_file(folder / f"{name}.safetensors"))
            losses[f"{name}-{kind}"] = train(model, tokens, True, document_end)
    for case, values in losses.items():
        print(f"{case}: the loss falls from {values[0]:.3f} to {values[-1]:.3f}")
    (folder / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(__file__).with_name("recurrent"))
