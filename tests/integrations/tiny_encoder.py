"""A tiny encoder with random weights and a small corpus in GoEmotions' format: nothing is downloaded."""

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = [f"word{number}" for number in range(40)]
LABELS = ("joy", "pride", "grief")
SHARES = (0.5, 0.3, 0.06)
PARTS = {"train.tsv": 160, "dev.tsv": 40, "test.tsv": 60}


def write_encoder(folder):
    """Save a two-layer encoder and its tokenizer; return the folder as a string."""
    words = ["[PAD]", "[UNK]", *WORDS]
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,  # frameworks do not all save the state of torch's generator
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return str(folder)


def texts_and_labels(n, seed=0):
    """Return texts of two to twelve words, and labels that depend on which words there are."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n, len(LABELS))) < SHARES
    Y[:, 0] |= ~Y.any(axis=1)
    texts = []
    for labels in Y:
        words = list(rng.choice(WORDS[len(LABELS) :], size=rng.integers(2, 10)))
        words += [WORDS[label] for label in np.flatnonzero(labels)]
        texts.append(" ".join(rng.permutation(words)))
    return texts, Y


def write_corpus(folder):
    """Write the files of a corpus into a folder, which has to be called goemotions."""
    folder.mkdir()
    for seed, (name, n) in enumerate(PARTS.items()):
        texts, Y = texts_and_labels(n, seed)
        lines = (
            f"{text}\t{','.join(map(str, np.flatnonzero(labels)))}\tid{row}\n"
            for row, (text, labels) in enumerate(zip(texts, Y, strict=True))
        )
        (folder / name).write_text("".join(lines))
    (folder / "labels.txt").write_text("\n".join(LABELS))
