"""Lightning.

    python examples/train_lightning.py work/packed out --steps 20

`TokenLoader` comes from the hook `train_dataloader`, which runs when torch.distributed has started, splits its rows between the
processes itself, and keeps its place in Lightning's checkpoints.
"""

import argparse

import lightning
import torch
from transformers import BertConfig, BertForMaskedLM

import clozeline


class Model(lightning.LightningModule):
    def __init__(self, data: str, batch_size: int) -> None:
        super().__init__()
        self.data, self.batch_size = data, batch_size
        facts = clozeline.TokenStream(data, rank=0, world_size=1).metadata.tokenizer
        self.model = BertForMaskedLM(
            BertConfig(
                vocab_size=facts.vocabulary_size,
                pad_token_id=facts.pad_id,
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=64,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )

    def train_dataloader(self) -> clozeline.TokenLoader:
        stream = clozeline.TokenStream(
            self.data, batch_size=self.batch_size, transform=clozeline.Masking(seed=1), seed=1
        )
        return clozeline.TokenLoader(stream)

    def training_step(self, batch: dict, index: int) -> torch.Tensor:
        loss = self.model(**batch).loss
        print(self.global_step + 1, loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    lightning.seed_everything(0)
    checkpoint = f"{args.out}/last.ckpt"
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(args.data, args.batch_size), ckpt_path=checkpoint if args.resume else None)
    trainer.save_checkpoint(checkpoint)


if __name__ == "__main__":
    main()
