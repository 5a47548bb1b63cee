"""Accelerate, one process or several.

    python examples/train_accelerate.py work/packed
    accelerate launch --cpu --num_processes 2 examples/train_accelerate.py work/packed

The stream splits its rows between the processes itself; so only the model and the optimizer go through `prepare`, and the stream is
made after the Accelerator, which starts torch.distributed.
"""

import argparse

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM

import clozeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--global-batch", type=int, default=16, help="rows per step, all processes together")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    stream = clozeline.TokenStream(
        args.data,
        batch_size=args.global_batch // accelerator.num_processes,
        transform=clozeline.Masking(seed=1),
        seed=1,
    )
    loader = clozeline.TokenLoader(stream)
    accelerator.register_for_checkpointing(loader)  # it has state_dict and load_state_dict

    torch.manual_seed(0)
    facts = stream.metadata.tokenizer
    config = BertConfig(
        vocab_size=facts.vocabulary_size,
        pad_token_id=facts.pad_id,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    model = BertForMaskedLM(config)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    step = 0
    while step < args.steps:
        for batch in loader:
            loss = model(**{name: values.to(accelerator.device) for name, values in batch.items()}).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            mean = accelerator.reduce(loss.detach(), "mean")
            if accelerator.is_main_process:
                print(step, mean.item())
            if step == args.steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
