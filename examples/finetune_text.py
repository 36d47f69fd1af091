"""Fine-tune a text encoder on rare labels: importance selection, a weighted loss and prior biases.

The texts are GoEmotions, fetched once (4 MB, 28 labels with 77 to 14,219 positives). The encoder is
all-MiniLM-L6-v2 as the extra `encoders` installs it, or any folder or hub name given by --encoder.
--texts names a folder with texts of your own, in the same format.

Run it:  python examples/finetune_text.py --rows 10000 --folder runs/emotions
With Lightning, or as a loop of your own:  ... --loop lightning,  ... --loop plain
On two processes:  torchrun --nproc-per-node 2 examples/finetune_text.py --loop plain
It trains on a GPU per process where CUDA is there, otherwise on the CPU.
Killed? Run the same command again: with --folder it continues in the middle of the epoch.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

from tailbatch import make_selector
from tailbatch.data import load_texts
from tailbatch.integrations.encoders import minilm
from tailbatch.integrations.pytorch import SelectiveLoader
from tailbatch.losses import make_loss
from tailbatch.metrics import average_precision_by_label
from tailbatch.models import set_prior_bias
from tailbatch.training import DistributedSelector


class Texts(Dataset):
    """Tokenized texts with their labels; the collator pads a batch to its longest text."""

    def __init__(self, part, tokenizer):
        self.tokens = tokenizer(list(part.texts), truncation=True, max_length=64)["input_ids"]
        self.labels = torch.from_numpy(part.Y).float()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index].tolist()}


def parameter_groups(model, lr):
    """Return groups for an optimizer: the head starts from nothing, and learns 20 times faster."""
    head = list(model.classifier.parameters())
    known = {id(parameter) for parameter in head}
    encoder = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return [{"params": encoder, "lr": lr}, {"params": head, "lr": 20 * lr}]


def with_trainer(model, texts, collate, loss, selector, options):
    """Hugging Face's Trainer: ours are the mixin and the two arguments selector and loss."""
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    from tailbatch.integrations.huggingface import SelectiveTrainerMixin

    class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
        """A Trainer whose batches a selector chooses."""

    folder = options.folder or "."
    trainer = SelectiveTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            num_train_epochs=options.epochs,
            lr_scheduler_type="cosine",
            warmup_steps=len(selector) // 10,
            save_strategy="steps" if options.folder else "no",
            save_steps=options.save_steps,
            save_total_limit=1,
            logging_steps=50,
            report_to="none",
            use_cpu=own_device().type == "cpu",
            dataloader_pin_memory=own_device().type != "cpu",
            disable_tqdm=True,
        ),
        train_dataset=texts,
        data_collator=collate,
        optimizers=(torch.optim.AdamW(parameter_groups(model, options.lr)), None),
        selector=selector,
        loss=loss,
    )
    found = get_last_checkpoint(folder) if options.folder and Path(folder).is_dir() else None
    trainer.train(resume_from_checkpoint=found)


def with_lightning(model, texts, collate, loss, selector, options):
    """Lightning: ours are the loader, the callback and the losses that training_step returns."""
    import lightning.pytorch as pl

    from tailbatch.integrations.lightning import SelectionCallback

    selector = DistributedSelector(selector)

    class Module(pl.LightningModule):
        """The model with its loss and optimizer."""

        def __init__(self):
            super().__init__()
            self.model = model.train()

        def training_step(self, batch):
            """Return the loss to minimize, and the losses it is the mean of."""
            labels = batch.pop("labels")
            losses = loss.rows(self.model(**batch).logits, labels)
            return {"loss": losses.mean() * selector.loss_scale(), "losses": losses}

        def configure_optimizers(self):
            """Return AdamW with a cosine schedule, step by step."""
            optimizer, schedule = optimizer_and_schedule(model, selector, options)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"},
            }

    callbacks = [SelectionCallback(selector)]
    if options.folder:
        callbacks.append(
            pl.callbacks.ModelCheckpoint(
                options.folder, save_last=True, every_n_train_steps=options.save_steps
            )
        )
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        accelerator=own_device().type,
        devices=selector.n_ranks,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=bool(options.folder),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = Path(options.folder or ".", "last.ckpt")
    resume = str(last) if options.folder and last.exists() else None
    trainer.fit(Module(), SelectiveLoader(texts, selector, collate_fn=collate), ckpt_path=resume)


def plain_loop(model, texts, collate, loss, selector, options):
    """Write the loop yourself: ours are the loader, `selector.mean` and `selector.observe`."""
    selector = DistributedSelector(selector)
    loader = SelectiveLoader(texts, selector, collate_fn=collate)
    device = own_device()
    model.to(device)  # before the optimizer gets the parameters
    optimizer, schedule = optimizer_and_schedule(model, selector, options)
    last = Path(options.folder or ".", "last.pt")
    if options.folder and last.exists():
        state = torch.load(last, weights_only=True, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        selector.load_state_dict(state["selector"])
    trained = model.train()
    if selector.n_ranks > 1:
        trained = torch.nn.parallel.DistributedDataParallel(model)
    while selector.epoch < options.epochs:
        for drawn in loader:
            batch = {name: tensor.to(device) for name, tensor in drawn.items()}
            labels = batch.pop("labels")
            torch.manual_seed(schedule.last_epoch)  # the same dropout when a step is repeated
            losses = loss.rows(trained(**batch).logits, labels)
            optimizer.zero_grad()
            # Weighted by 1 / (n p), so the expected gradient is that of shuffled batches.
            (selector.mean(losses) * selector.loss_scale()).backward()
            optimizer.step()
            schedule.step()
            selector.observe(losses)
            if options.folder and schedule.last_epoch % options.save_steps == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "selector": loader.state_dict(),
                }
                if is_first():
                    last.parent.mkdir(parents=True, exist_ok=True)
                    torch.save(state, last.with_suffix(".part"))
                    last.with_suffix(".part").replace(last)


def optimizer_and_schedule(model, selector, options):
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.AdamW(parameter_groups(model, options.lr))
    steps = options.epochs * len(selector)
    return optimizer, get_cosine_schedule_with_warmup(optimizer, len(selector) // 10, steps)


def own_device():
    """Return this process's GPU where CUDA is there, otherwise the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def is_first():
    """Whether this is the process that prints and saves."""
    return int(os.environ.get("RANK", 0)) == 0


@torch.no_grad()
def evaluate_by_label(model, part, tokenizer, collate):
    """Print the average precision of the rarest labels, and the mean over all."""
    texts, model = Texts(part, tokenizer), model.eval()
    order = np.argsort([len(tokens) for tokens in texts.tokens])  # less padding
    scores = np.empty(part.Y.shape, dtype=np.float32)
    for rows in np.array_split(order, max(len(order) // 64, 1)):
        batch = collate([texts[row] for row in rows]).to(model.device)
        batch.pop("labels")
        scores[rows] = model(**batch).logits.sigmoid().cpu().numpy()
    found = average_precision_by_label(part.Y, scores)
    for label in part.Y.sum(axis=0).argsort()[:5]:
        positives = int(part.Y[:, label].sum())
        print(f"{part.label_names[label]:>14} {found[label]:.3f} ({positives} test rows)")
    print(f"      Macro-AP {np.nanmean(found):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--loop", choices=list(LOOPS), default="trainer")
    parser.add_argument("--encoder", help="folder or hub name; all-MiniLM-L6-v2 by default")
    parser.add_argument("--texts", default="goemotions", help="a known corpus, or a folder")
    parser.add_argument("--rows", type=int, help="first so many training rows; all by default")
    parser.add_argument("--strategy", default="importance")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--folder", help="where to save, and to continue from")
    parser.add_argument("--save-steps", type=int, default=100)
    options = parser.parse_args()
    together = "WORLD_SIZE" in os.environ
    if together:
        device = own_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    parts = load_texts(options.texts)
    train = parts.train.take(range(len(parts.train))[: options.rows])
    loss = make_loss("weighted_bce", train.Y)
    selector = make_selector(
        options.strategy, train.Y, batch_size=32, loss=loss, warm_up_epochs=0, epochs=options.epochs
    )
    torch.manual_seed(0)
    encoder = options.encoder or minilm()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=train.Y.shape[1], problem_type="multi_label_classification"
    )
    set_prior_bias(model.classifier, train.Y, loss.positive_weights)
    collate = DataCollatorWithPadding(tokenizer)
    LOOPS[options.loop](model, Texts(train, tokenizer), collate, loss, selector, options)

    if is_first():
        share = selector.diagnostics().minority_share
        print(f"{share:.0%} of the draws carry a rare label")
        evaluate_by_label(model, parts.test, tokenizer, collate)
    if together:
        dist.destroy_process_group()


LOOPS = {"trainer": with_trainer, "lightning": with_lightning, "plain": plain_loop}

if __name__ == "__main__":
    main()
