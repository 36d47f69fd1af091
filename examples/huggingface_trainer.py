"""Hugging Face's Trainer: train a text model on the names and dependencies of Debian packages.

The model is small, starts from random weights, and uses the words of the embedded dataset, so nothing
is downloaded. With a model from the hub, only `model` and `WordsOfPackages` change.

Run it: python examples/huggingface_trainer.py
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from tailbatch import load_dataset, make_selector
from tailbatch.integrations.huggingface import SelectiveTrainerMixin

N_WORDS = 24  # texts are truncated to this many words


class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
    """A Trainer whose batches a selector chooses."""


class WordsOfPackages(Dataset):
    """Packages as text: the words of a name, then the packages it depends on."""

    def __init__(self, data):
        named = sorted(
            range(data.n_features), key=lambda j: not data.feature_names[j].startswith("name=")
        )
        words = ["[PAD]", *(data.feature_names[j].partition("=")[2] for j in named)]
        self.vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
        X = data.X[:, named].tocsr()
        self.texts = [
            " ".join(words[1 + j] for j in sorted(X.indices[start:end]))
            for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True)
        ]
        self.labels = torch.from_numpy(data.Y).float()

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = [self.vocabulary[word] for word in self.texts[index].split()[:N_WORDS]]
        padding = N_WORDS - len(words)
        return {
            "input_ids": torch.tensor(words + [0] * padding),
            "attention_mask": torch.tensor([1] * len(words) + [0] * padding),
            "labels": self.labels[index],
        }


def main():
    data = load_dataset("debtags").take(range(1024))
    texts = WordsOfPackages(data)
    print(f"the first text: {texts.texts[0]}")
    config = BertConfig(
        vocab_size=len(texts.vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=data.n_labels,
        problem_type="multi_label_classification",
    )
    torch.manual_seed(0)
    selector = make_selector("adaptive", data.Y, X=data.X, batch_size=64, warm_up_epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SelectiveTrainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=3,
                learning_rate=1e-3,
                logging_strategy="epoch",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=texts,
            selector=selector,
        )
        trainer.train()  # trainer.train(resume_from_checkpoint=True) resumes
    share = selector.diagnostics().minority_share
    print(f"{share:.0%} of the last epoch's draws carry a rare label")


if __name__ == "__main__":
    main()
