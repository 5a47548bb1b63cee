"""`clozeline.evaluate` beside a plain full-logits loop and `Trainer.evaluate`, on the same rows and model.

    python benchmarks/evaluate.py work/masked --rows 24 --batch-rows 8 --repeats 3

Each contender runs in a process of its own, in turns, and reports: rows per second after one warm-up batch, the peak memory of the
process, the largest output of the vocabulary projection, and the loss. The model has the shape of bert-base and random weights,
unless --model names another. A data set whose rows are padded (`pack --packing documents`) shows what is saved by computing rows of
near length together; with --documents-apart clozeline reads document by document (`pack --boundaries`). On a GPU (--device cuda
--dtype bf16) the model FLOP utilisation is given too, against --peak-tflops.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

import clozeline
from harness import english_rows, record

CONTENDERS = ("plain loop", "Trainer.evaluate", "clozeline")


def batches(
    args: argparse.Namespace, rows: int, together: int = 1, columns: tuple[str, ...] = ()
) -> Iterator[dict[str, torch.Tensor]]:
    options = clozeline.StreamOptions(columns=columns)
    size = min(rows, together * args.batch_rows)
    stream = clozeline.TokenStream(args.data, batch_size=size, shuffle=None, epoch=0, options=options)
    for number, batch in enumerate(stream):
        left = rows - number * size
        if left <= 0:
            return
        yield {name: batch[name][:left] for name in ("input_ids", "attention_mask", "labels", *columns)}


def plain_loop(model: Any, args: argparse.Namespace) -> Callable[[int], float]:
    """What is written by hand: all logits, one cross-entropy over the batch, summed."""
    precision = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]

    def run(rows: int) -> float:
        loss, count = 0.0, 0
        autocast = torch.autocast(args.device, dtype=precision, enabled=precision is not torch.float32)
        with torch.inference_mode(), autocast:
            for batch in batches(args, rows):
                batch = {name: values.to(args.device) for name, values in batch.items()}
                labels = batch.pop("labels")
                logits = model(**batch).logits
                flat = logits.view(-1, logits.shape[-1]).float()
                loss += float(torch.nn.functional.cross_entropy(flat, labels.view(-1), reduction="sum"))
                count += int((labels != -100).sum())
        return loss / count

    return run


def trainer(model: Any, args: argparse.Namespace) -> Callable[[int], float]:
    """`Trainer.evaluate` at its best: no predictions kept."""
    kind = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_eval_batch_size=args.batch_rows,
        prediction_loss_only=True,
        report_to=[],
        use_cpu=args.device == "cpu",
        disable_tqdm=True,
        bf16_full_eval=False,
        bf16=args.dtype == "bf16",
        fp16=args.dtype == "fp16",
        dataloader_pin_memory=args.device == "cuda",
    )

    def run(rows: int) -> float:
        dataset = [{n: v[i] for n, v in batch.items()} for batch in batches(args, rows) for i in range(args.batch_rows)]
        return float(transformers.Trainer(model=model, args=kind, eval_dataset=dataset).evaluate()["eval_loss"])

    return run


def ours(model: Any, args: argparse.Namespace) -> Callable[[int], float]:
    apart = args.documents_apart
    options = clozeline.EvaluateOptions(dtype=args.dtype, batch_rows=args.batch_rows, documents_apart=apart)
    columns = ("document_lengths",) if apart else ()

    def run(rows: int) -> float:
        loss = clozeline.evaluate(model, batches(args, rows, 8, columns), options).loss  # as `assess` reads them
        assert loss is not None
        return loss

    return run


def contend(args: argparse.Namespace) -> None:
    """One contender, in this process."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    if args.model:
        model = transformers.AutoModelForMaskedLM.from_pretrained(args.model)
    else:
        config = transformers.BertConfig(vocab_size=args.vocabulary)
        model = transformers.AutoModelForMaskedLM.from_config(config)
    model = model.to(args.device).eval()
    largest = 0

    def see(module: Any, inputs: Any, output: torch.Tensor) -> None:
        nonlocal largest
        largest = max(largest, output.numel() * output.element_size())

    model.get_output_embeddings().register_forward_hook(see)
    run = {"plain loop": plain_loop, "Trainer.evaluate": trainer, "clozeline": ours}[args.contender](model, args)
    run(args.batch_rows)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begun, used = time.perf_counter(), time.process_time()
    loss = run(args.rows)
    seconds, used = time.perf_counter() - begun, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    weights = sum(p.numel() for n, p in model.named_parameters() if "embeddings" not in n and "decoder" not in n)
    flops = 2 * weights * 512 * args.rows / seconds
    print(
        json.dumps(
            {
                "loss": loss,
                "rows_per_second": args.rows / seconds,
                "cpu": used / args.rows,
                "peak": peak,
                "logits": largest,
                "tflops": flops / 1e12,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="?", help="a masked data set of one copy  [default: made of the benchmarks' English text]"
    )
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--batch-rows", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--model", help="folder of a model  [default: bert-base shape, random weights]")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bf16", "fp16"])
    parser.add_argument("--documents-apart", action="store_true", help="clozeline only: each document read alone")
    parser.add_argument("--peak-tflops", type=float, help="of the device, for the utilisation")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rows = -(-args.rows // args.batch_rows) * args.batch_rows
    if args.contender:
        contend(args)
        return
    given = sys.argv[1:] if args.data else [str(english_rows() / "masked"), *sys.argv[1:]]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(args.repeats):
        for name in CONTENDERS:
            command = [sys.executable, __file__, *given, "--contender", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    figures = {}
    for name, runs in found.items():
        row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        pairs = list(zip(runs, found["plain loop"], strict=True))
        figures[name] = {
            "rows/s": row["rows_per_second"],
            "x plain": statistics.median(mine["rows_per_second"] / plain["rows_per_second"] for mine, plain in pairs),
            "CPU s/row": row["cpu"],
            "x less CPU": statistics.median(plain["cpu"] / mine["cpu"] for mine, plain in pairs),
            "peak MiB": row["peak"] / 2**20,
            "logits MiB": row["logits"] / 2**20,
            "loss": row["loss"],
        }
        if args.peak_tflops is not None:
            figures[name]["MFU %"] = 100 * row["tflops"] / args.peak_tflops
    title = f"Loss on {args.rows} masked rows, {args.batch_rows} at once, {args.device}, {args.dtype}"
    print(record("evaluate", title, figures, args.repeats))


if __name__ == "__main__":
    main()
