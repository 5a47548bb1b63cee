"""Hugging Face Trainer, with its defaults.

    python examples/train_trainer.py work/packed out --steps 20

The Trainer makes batches of single rows, splits them between processes, and calls `set_epoch` itself: so it takes a stream without
batch_size, of rank 0 of 1 in every process. A stream that splits too, or gives whole batches, is refused when training starts.
"""

import argparse

from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

import clozeline


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
    )
    trainer.train(resume_from_checkpoint=args.resume)
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print(entry["step"], entry["loss"])
    print("held out", trainer.evaluate()["eval_loss"])


if __name__ == "__main__":
    main()
