"""Trains `sample_data/model`, a small BertForMaskedLM, on the packed sample rows. Run from the repository root:

    clozeline run sample_data/corpus work/demo --config sample_data/demo.toml --force
    python sample_data/train_model.py work/demo/packed sample_data/model

It takes about ten minutes on one core. Every epoch sees new masks: those of `Masking(seed=1)`, whose static copies the
demonstration (seed 42) does not use. The model has seen the text, though: its loss says that training works, not that the
model is good.
"""

import argparse

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import clozeline

SEED = 1
EPOCHS = 120
BATCH = 32
PEAK_RATE = 3e-3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("packed")
    parser.add_argument("model")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(f"{args.packed}/tokenizer")
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=128,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(config)
    stream = clozeline.TokenStream(
        args.packed, batch_size=BATCH, shuffle="global", seed=SEED, transform=clozeline.Masking(seed=SEED)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_RATE, total_steps=EPOCHS * len(stream), pct_start=0.1
    )
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in stream:
            selected = batch["labels"] != -100
            hidden = model.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state[selected]
            loss = torch.nn.functional.cross_entropy(model.cls(hidden), batch["labels"][selected])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.item()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: mean of batch losses {total / len(stream):.3f}", flush=True)  # noqa: T201
    model.save_pretrained(args.model)
    tokenizer.save_pretrained(args.model)


if __name__ == "__main__":
    main()
