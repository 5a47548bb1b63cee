"""`clozeline evaluate`."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.main import EXIT_ERROR, EXIT_NO
from clozeline.cli.options.mask import build_mask_rule, rule_options
from clozeline.cli.options.run import output_options, seed_option
from clozeline.cli.report import print_json, warn
from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clozeline.assessment import Assessment, AssessOptions
    from clozeline.evaluation.evaluate import EvaluateProgress
    from clozeline.evaluation.totals import Units
    from clozeline.masking.transform import Masking


_WORST = 10  # rows in the report, token by token


@click.command("evaluate", epilog="Example: clozeline evaluate work/masked --model work/model --max-loss 2.5")
@click.argument("data")
@click.option("--model", required=True, help="Folder of a masked language model, or its name on the hub.")
@click.option("--compare", metavar="MODEL2", help="A second model: the difference of the two, paired row by row.")
@click.option("--max-loss", type=float, metavar="NATS", help="Exit with 1 when the loss is above this.")
@click.option("--mask-on-the-fly", is_flag=True, help="Mask packed rows now, by --seed and the options of `mask`.")
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Maskings on the fly; epoch k is static copy k.",
)
@seed_option
@rule_options
@click.option("--pll", is_flag=True, help="Pseudo-log-likelihood: mask every token in turn, one forward pass each.")
@click.option(
    "--documents-apart",
    is_flag=True,
    help="Let the model read each document of a row on its own, as it would alone (data packed with --boundaries).",
)
@click.option("--limit-rows", type=click.IntRange(1), help="So many rows, drawn from all.  [default: all]")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="Where the model runs; auto takes a GPU where there is one.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bf16", "fp16"]),
    default="auto",
    show_default=True,
    help="Of matrix products; auto is bf16 on a GPU that has it, else float32. The softmax is float32 always.",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1),
    help="Rows at once, or as many positions in shorter rows; halved where memory runs out.  [default: 8,192 positions on a CPU; "
    "131,072 on a GPU, or the half, the quarter, ... that its memory holds]",
)
@click.option(
    "--attention",
    type=click.Choice(["auto", "eager", "sdpa", "flash_attention_2"]),
    default="auto",
    show_default=True,
    help="Implementation of attention; auto is what transformers prefers for the model.",
)
@click.option("--compile", is_flag=True, help="Pass the encoder through torch.compile.")
@click.option("--trust-remote-code", is_flag=True, help="Run Python code that comes with the model.")
@click.option("--allow-pickle", is_flag=True, help="Read weights from pickle files, which can run any code.")
@click.option(
    "--per-row", type=click.Path(path_type=Path, dir_okay=False), help="Write every row's figures to this Parquet file."
)
@click.option(
    "--per-document",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The same for every document in every row, of data packed with --boundaries.",
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a report, with the worst rows, to this file."
)
@click.option(
    "--checkpoint", type=click.Path(path_type=Path, dir_okay=False), help="File that keeps what is done, every minute."
)
@click.option("--resume", is_flag=True, help="Go on from --checkpoint where it exists.")
@output_options
def command(
    data: str,
    model: str,
    compare: str | None,
    max_loss: float | None,
    per_row: Path | None,
    per_document: Path | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """A model's loss on masked tokens.

    DATA is a folder with masked rows (`clozeline mask`), or with packed rows and --mask-on-the-fly or --pll. The loss is
    the mean of -log P over all selected tokens, in nats. Under torchrun the processes share the rows, with the same
    result.
    """
    from clozeline.assessment import assess
    from clozeline.evaluation.ranks import leave, process_rank

    _check_places(per_row, per_document, html, values["checkpoint"])
    with _bar(quiet=quiet) as show:
        options = _options(data, values, _WORST if html else 0)
        found = assess(data, model, options, against=compare, on_progress=show, on_warning=None if quiet else warn)
    result = found.result
    if process_rank() == 0:
        if per_row is not None:
            _write_table(per_row, found.result.row_scores)
        if per_document is not None:
            _write_table(per_document, found.result.document_scores)
        if html is not None:
            _write_report(html, found)
        if as_json:
            print_json(found.to_json())
        else:
            click.echo(_describe(found, chosen=options.batch_rows is None))
    leave()
    if result.not_finite_tokens:
        rows = ", ".join(f"row {r['row']} of shard {r['shard']}" for r in result.not_finite_rows)
        message = f"{data}: {result.not_finite_tokens:,} tokens have no finite loss, in {rows}; look there, or try --dtype float32"
        click.echo(f"clozeline: error: {message}", err=True)
        raise SystemExit(EXIT_ERROR)
    if max_loss is not None:
        if result.loss is None:
            raise ConfigError(
                f"{data}: no token is selected, so there is no loss that --max-loss could be held against"
            )
        if result.loss > max_loss:
            click.echo(f"clozeline: the loss is {result.loss:.6f} nats, more than {max_loss:g}", err=True)
            raise SystemExit(EXIT_NO)


def _check_places(*files: Path | None) -> None:
    """Refuses places where nothing can be written, before hours of work rather than after."""
    for file in files:
        if file is not None and not os.access(file.parent, os.W_OK):
            raise ConfigError(f"{file}: nothing can be written in {file.parent}; make that folder, or choose another")


def _options(data: str, values: dict[str, Any], worst: int) -> AssessOptions:
    from clozeline.assessment import AssessOptions
    from clozeline.evaluation.evaluate import EvaluateOptions

    names = (
        "epochs",
        "limit_rows",
        "batch_rows",
        "device",
        "attention",
        "trust_remote_code",
        "allow_pickle",
        "checkpoint",
        "resume",
    )
    return AssessOptions(
        masking=_masking(data, values) if values["mask_on_the_fly"] else None,
        worst_rows=worst,
        compute=EvaluateOptions(
            dtype=values["dtype"],
            pseudo_likelihood=values["pll"],
            documents_apart=values["documents_apart"],
            compile=values["compile"],
        ),
        **{name: values[name] for name in names},
    )


def _masking(data: str, values: dict[str, Any]) -> Masking:
    from clozeline.masking.counts import token_counts
    from clozeline.masking.transform import Masking

    rule = build_mask_rule(values)
    return Masking(
        seed=values["seed"],
        rule=rule,
        counts=token_counts(data) if rule.replacement == "frequency" else None,
        allow_lower_rate=values["allow_lower_rate"],
    )


@contextlib.contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[EvaluateProgress, int], None] | None]:
    """A progress bar with the running loss, on a terminal and for the first process."""
    if quiet or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("evaluate"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("evaluate", total=None, loss="")

        def update(progress: EvaluateProgress, rows: int) -> None:
            loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
            text = f"{loss}, {progress.rows_per_second:,.1f} rows/s"
            bar.update(task, total=rows, completed=progress.rows, loss=text)

        yield update


def _number(value: float | None, digits: int = 4) -> str:
    if value is None:
        return "none"
    return f"{value:,.{digits}f}" if math.isfinite(value) else str(value)


def _describe(found: Assessment, *, chosen: bool) -> str:
    """For people.

    Args:
        chosen: the number of rows at once was not given.
    """
    result = found.result
    lines = [f"{found.data}: {result.selected_tokens:,} tokens selected in {result.rows:,} rows"]
    if result.loss is None:
        lines.append("  nothing is selected, so there is no loss")
    else:
        interval = ""
        if result.interval is not None:
            interval = f" (95 %: {_number(result.interval[0])} to {_number(result.interval[1])}, clustered by row)"
        lines += [
            f"  loss        {_number(result.loss)} nats per selected token{interval}",
            f"              {_number(result.loss_bits)} bits, perplexity {_number(result.perplexity, 2)}",
            f"  accuracy    {_number(result.accuracy)}, {_number(result.top5_accuracy)} among the first five",
        ]
    if len(result.maskings) > 1:
        each = ", ".join(_number(loss) for loss in result.maskings)
        lines.append(f"  maskings    {each} (standard deviation {_number(result.masking_spread)})")
    for group in result.by.get("action", ()):
        lines.append(
            f"  {group.group:<11} {_number(group.loss)} nats, accuracy {_number(group.accuracy)}, {group.selected_tokens:,} tokens"
        )
    if found.comparison is not None:
        other = found.comparison
        interval = ""
        if other.interval is not None:
            interval = f" (95 %: {other.interval[0]:+.4f} to {other.interval[1]:+.4f}, paired by row)"
        lines.append(f"  {other.model}: loss {_number(other.loss)}, difference {_number(other.difference)}{interval}")
    if result.context == "document":
        lines.append("  read        document by document")
    by = ", as suits the device" if chosen else ""
    processes = f"{result.processes} process{'es' if result.processes > 1 else ''}"
    speed = f"{result.rows_per_second:,.1f} rows/s, {result.tokens_per_second:,.0f} tokens/s"
    lines += [
        f"  speed       {speed} on {result.device}, {result.dtype}, {processes}",
        f"  computed    {result.batch_rows} rows at once{by}; {result.padding_share:.1%} padding; head at {result.head}",
    ]
    return "\n".join(lines)


def _write_table(path: Path, units: Units) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(units.columns()), path)


def _write_report(path: Path, found: Assessment) -> None:
    from clozeline.evaluation.report import render

    masks = ", ".join(f"{name} {value}" for name, value in found.masks.items())
    facts = {"data": found.data, "model": found.model, "model sha256": found.model_sha256, "masks": masks}
    path.write_text(
        render("Loss on masked tokens", facts, found.result, found.comparison, found.worst), encoding="utf-8"
    )
