"""A tiny random text encoder, made in a folder as transformers saves one: a few kB, no download."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

WORDS = [
    *("printer", "jam", "paper", "ink", "password", "login", "reset", "invoice", "refund"),
    *("late", "box", "broken", "the", "my", "is", "a"),
]


def tiny_encoder(folder, *, seed=0, width=16, layers=1):
    """Write a BERT of a few thousand random weights, with a tokenizer of a few words."""
    from transformers import BertConfig, BertModel

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [
        *"abcdefghijklmnopqrstuvwxyz0123456789",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    ]
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "BertTokenizer", "model_max_length": 32, "do_lower_case": True}
        )
    )
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config)
    config.save_pretrained(folder)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)
