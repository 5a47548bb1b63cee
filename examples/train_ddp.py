"""Plain PyTorch, one process or several: a run that can be killed at any time and goes on with any number of processes.

    python examples/train_ddp.py work/packed --checkpoint checkpoint.pt
    torchrun --nproc-per-node 2 examples/train_ddp.py work/packed --checkpoint checkpoint.pt

The losses are the same in all cases, to rounding: the global batches are, and the loss is the mean over the selected tokens of a
global batch.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertForMaskedLM

import clozeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--checkpoint", type=Path, required=True, help="is read when it is there")
    parser.add_argument("--losses", type=Path, help="one JSON line per step")
    parser.add_argument("--global-batch", type=int, default=16, help="rows per step, all processes together")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

    stream = clozeline.TokenStream(
        args.data, batch_size=args.global_batch // world_size, transform=clozeline.Masking(seed=1), seed=1
    )
    loader = clozeline.TokenLoader(stream, num_workers=args.num_workers)

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
    model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["stream"])
        step = saved["step"]
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model

    while loader.epoch < args.epochs:
        for batch in loader:
            logits = parallel(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            total = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100, reduction="sum")
            selected = (batch["labels"] != -100).sum()
            if dist.is_initialized():
                dist.all_reduce(selected)
            loss = total / selected
            optimizer.zero_grad()
            (loss * world_size).backward()  # DistributedDataParallel takes the mean over processes; the sum is meant
            optimizer.step()
            step += 1
            if dist.is_initialized():
                dist.all_reduce(loss := loss.detach())
            if rank == 0 and args.losses:
                with args.losses.open("a") as file:
                    file.write(json.dumps({"step": step, "epoch": loader.epoch, "loss": loss.item()}) + "\n")
            if rank == 0 and step % args.save_every == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "stream": loader.state_dict(),
                    "step": step,
                }
                part = args.checkpoint.with_suffix(".part")
                torch.save(state, part)
                part.replace(args.checkpoint)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
