#!/usr/bin/env python3
"""Writes tokenizers/: vocabularies trained by Hugging Face's tokenizers, a text in many scripts, and its tokens.

    tests/golden/make_tokenizers.py [--full FOLDER]

Each folder NAME has the files of a tokenizer and tokens.bin, the ids of text.txt as uint16 (little-endian). --full
writes larger vocabularies and a text of 10 MB; data_tokenizers_test reads them if TRIREME_TOKENIZERS is the FOLDER.
Also prints the speed of each tokenizer in CPU time, for the whole text and for its lines. Created with
tokenizers 0.23.3 and Python 3.11.

For WordPiece, tokenizers classifies characters by tables of an older Unicode. The text has none of the characters whose
categories differ in the Unicode of Python.
"""
import argparse
import array
import os
import pathlib
import random
import sys
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER", help="write large vocabularies and a text of 10 MB")
    return parser.parse_args()


OPTIONS = arguments()  # --help works without the packages

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "äöüßéèêëçñåøæœőğıİŠžÀÉÎÕÜ", "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЖШ",
           "αβγδεζηθικλμνξοπρσςτυφχψωΆΈΣΩ", "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "अआइईउऊकखगघचछजझटठडढणतथदधनपफबभम",
           "กขคฆงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ", "가각간나다라마바사아자차카타파하한글", "あいうえおかきくけこアイウエオカキクケコ", "一二三四五六七八九十人大小中国日本語漢字"]
SPACES = ["\n", "\r\n", "\t", "  ", "   ", "\n\n", " \n", "\u00a0", "\u2003", "\u3000", "\u2028", "\v", "\f", "\u0085"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "☃", "🫠", "1️⃣"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'x", "''", "’s"]
CONTROLS = ["\0", "\x01", "\x1b", "\x7f", "\u200b", "\u200d", "\u202e", "\ufeff", "\ufffd", "\u00ad", "\ue000"]


def bert_normalized(c):
    """Returns a character as the BasicTokenizer of BERT normalizes it, with the Unicode of Python."""
    category = unicodedata.category(c)
    if c in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    if category in ("Cc", "Cf", "Co") or c == "\ufffd":
        return ""
    return "".join(d.lower() for d in unicodedata.normalize("NFD", c) if unicodedata.category(d) != "Mn")


def known_characters():
    """Returns the characters that are assigned, and of the same category for Python and for tokenizers."""
    normalizer = normalizers.BertNormalizer(handle_chinese_chars=False)
    splitter = pre_tokenizers.BertPreTokenizer()
    known, skipped = [], 0
    for c in map(chr, range(0x80, 0x110000)):
        category = unicodedata.category(c)
        if category in ("Cn", "Cs", "Co"):
            continue
        splits = len(splitter.pre_tokenize_str(f"a{c}b")) == 3
        if normalizer.normalize_str(f"a{c}b") == f"a{bert_normalized(c)}b" and splits == category.startswith("P"):
            known.append(c)
        else:
            skipped += 1
    print(f"{len(known)} characters, without {skipped} whose categories differ (Python: Unicode {unicodedata.unidata_version})")
    return known


class TextGenerator:
    def __init__(self, seed, characters):
        self.random = random.Random(seed)
        self.characters = characters
        # Words that occur often, as in real texts.
        self.words = [self.word() for _ in range(3000)]

    def word(self):
        letters = self.random.choice(SCRIPTS[:2] * 6 + SCRIPTS)
        word = "".join(self.random.choices(letters, k=min(1 + int(self.random.expovariate(0.25)), 30)))
        if self.random.random() < 0.1:
            word = word.capitalize()
        if self.random.random() < 0.03:
            word = unicodedata.normalize("NFD", word)
        return word

    def piece(self):
        kind = self.random.random()
        choose = self.random.choice
        if kind < 0.70:
            return choose(self.words[:int(self.random.paretovariate(0.3)) % len(self.words) + 1])
        if kind < 0.75:
            return self.word()
        if kind < 0.79:
            return str(self.random.randrange(10 ** self.random.randrange(1, 9)))
        if kind < 0.84:
            return choose(",.;:!?-()[]{}\"'/\\@#$%^&*_+=|<>~`…—«»“”¿¡§€") * self.random.choice([1, 1, 1, 2, 3])
        if kind < 0.87:
            return choose(self.words) + choose(CONTRACTIONS)
        if kind < 0.90:
            return choose(SPACES)
        if kind < 0.93:
            return choose(EMOJI)
        if kind < 0.94:
            return choose(CONTROLS)
        if kind < 0.99:
            return "".join(self.random.choices(self.characters, k=self.random.randrange(1, 5)))
        if kind < 0.9995:
            return choose(self.words) + choose(["\u0301", "\u0323\u0302", "\u20dd", "\u0903"]) + self.word()
        return choose(["a", "Ä", "9", "!", " ", "字", "\u0301"]) * self.random.randrange(50, 300)

    def text(self, size):
        pieces, length = [], 0
        while length < size:
            piece = self.piece()
            if self.random.random() < 0.8:
                piece = " " + piece
            if self.random.random() < 0.02:
                piece += "\n"
            pieces.append(piece)
            length += len(piece.encode())
        return "".join(pieces)


def byte_level_bpe(texts, size, folder):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    trained.model.save(str(folder))
    # Without special tokens, whose names would not be ordinary text.
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_piece(texts, size, folder, lowercase):
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIAL, limit_alphabet=size // 2,
                                                                show_progress=False))
    trained.model.save(str(folder))
    tokenizer = Tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def seconds(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def main(root, text_size, vocab_size, time_it):
    characters = known_characters()
    text = TextGenerator(1, characters).text(text_size)
    training = TextGenerator(1, characters).text(min(text_size * 4, 4_000_000)).split("\n")
    root.mkdir(exist_ok=True)
    (root / "text.txt").write_bytes(text.encode())
    for name, train in {"bpe": byte_level_bpe,
                        "wordpiece": lambda *rest: word_piece(*rest, lowercase=True),
                        "wordpiece-cased": lambda *rest: word_piece(*rest, lowercase=False)}.items():
        folder = root / name
        folder.mkdir(exist_ok=True)
        tokenizer = train(training, vocab_size, folder)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokens = array.array("H", ids)
        if sys.byteorder == "big":
            tokens.byteswap()
        (folder / "tokens.bin").write_bytes(tokens.tobytes())
        print(f"{name}: {tokenizer.get_vocab_size()} tokens in the vocabulary, {len(ids)} in the text")
        if time_it:
            lines = text.split("\n")
            whole = min(seconds(lambda: tokenizer.encode(text, add_special_tokens=False)) for _ in range(3))
            each = min(seconds(lambda: tokenizer.encode_batch(lines, add_special_tokens=False)) for _ in range(3))
            print(f"  {text_size / whole / 1e6:.2f} MB/s as one text, {text_size / each / 1e6:.2f} MB/s by lines")


if __name__ == "__main__":
    if OPTIONS.full:
        main(OPTIONS.full, 10_000_000, 16_000, True)
    else:
        main(pathlib.Path(__file__).with_name("tokenizers"), 16_000, 1_000, False)
