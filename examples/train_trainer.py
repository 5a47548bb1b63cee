"""Hugging Face Trainer, with its defaults.

    python examples/train_trainer.py work/packed out --steps 20

The Trainer makes batches of single rows, splits them between processes, and calls `set_epoch` itself: so it takes a stream without
batch_size, of rank 0 of 1 in every process. A stream that splits too, or gives whole batches, is refused when training starts.

    torchrun --nproc-per-node 2 examples/train_trainer.py work/packed out --batch-size 4

has the same losses: its global batches are the same rows. That needs the loss below: BERT's own is a mean over the selected tokens
of each process, which the Trainer (of transformers 5) multiplies by the number of processes, and so the gradients. Where rows of an
epoch are left that fill no global batch, Accelerate fills the last one up with rows of the first (`dataloader_drop_last` would drop
them, from the evaluation too; for an exact loss on held-out rows use `clozeline evaluate`).
"""

import argparse
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

import clozeline


def mean_over_selected(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
) -> torch.Tensor:
    """The loss over the selected tokens of all processes and accumulated batches, as many as the Trainer says."""
    total = cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    return total / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    stream = clozeline.TokenStream(args.data, transform=clozeline.Masking(seed=1), seed=1, rank=0, world_size=1)
    held = clozeline.TokenDataset(args.data, transform=clozeline.Masking(seed=2))
    torch.manual_seed(0)
    facts = stream.metadata.tokenizer
    config = BertConfig(
        vocab_size=facts.vocabulary_size,
        pad_token_id=facts.pad_id,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    trainer = Trainer(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            output_dir=args.out,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            save_steps=10,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            accelerator_config={"dispatch_batches": False},  # each process reads its own rows: nothing is sent around
        ),
        train_dataset=stream,
        eval_dataset=held,
        compute_loss_func=mean_over_selected,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    held_out = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(entry["step"], entry["loss"])
        print("held out", held_out)


if __name__ == "__main__":
    main()
