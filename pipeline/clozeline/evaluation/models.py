"""Loads a model, and refuses one that the rows were not made for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, DataError
from clozeline.evaluation.scorer import vocabulary_rows
from clozeline.store.manifest import digest

if TYPE_CHECKING:
    import os

    import torch
    from torch import nn

    from clozeline.store.manifest import Metadata

ATTENTION = ("auto", "eager", "sdpa", "flash_attention_2")
_PADDED_TO = 512  # embedding rows are rounded up to multiples of 64, 128, at times more


def load_model(
    source: str | os.PathLike[str],
    device: torch.device,
    *,
    attention: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> nn.Module:
    """A masked language model by its folder or its name on the hub, in float32 and in evaluation mode.

    Args:
        attention: "eager", "sdpa", "flash_attention_2", or "auto" for what transformers prefers.
        trust_remote_code: run Python files that come with the model.
        allow_pickle: read weights in pickle files, which can run any code, where there are no safetensors.

    Raises:
        DataError: there is no such model, it is no masked language model, or it has parts that its files do not fill.
        ConfigError: it needs one of the permissions above.
    """
    import transformers

    if attention not in ATTENTION:
        raise ConfigError(f"attention is {attention!r}: use {', '.join(ATTENTION)}")
    path = Path(source)
    if not path.exists() and (str(source).startswith((".", "/", "~")) or str(source).count("/") > 1):
        raise DataError(f"{source}: no such model folder; check the path")
    if path.is_dir():
        _look_at(path, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    extra: dict[str, Any] = {} if attention == "auto" else {"attn_implementation": attention}
    log = transformers.utils.logging
    verbosity, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()  # what it would warn of is refused below
    log.disable_progress_bar()
    try:
        model, report = transformers.AutoModelForMaskedLM.from_pretrained(
            str(source),
            trust_remote_code=trust_remote_code,
            use_safetensors=None if allow_pickle else True,
            output_loading_info=True,
            **extra,
        )
    except Exception as error:  # transformers, safetensors, the hub and pickle each raise their own
        raise DataError(f"{source}: cannot be loaded as a masked language model ({_line(error)})") from error
    finally:
        log.set_verbosity(verbosity)
        if bar:
            log.enable_progress_bar()
    wrong = sorted(report["missing_keys"]) + sorted(str(m) for m in report.get("mismatched_keys", ()))
    if wrong:
        raise DataError(
            f"{source}: its files lack {len(wrong)} of the weights of a {type(model).__name__}, {wrong[0]} first, "
            "which would be filled at random; give a model that was trained as a masked language model"
        )
    moved: nn.Module = model.float().to(device).eval()
    return moved


def model_digest(model: nn.Module) -> str:
    """sha256 (hex) of a model's weights by name, dtype, shape and value: the same in whatever files they were."""
    import torch

    sha256 = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha256.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        sha256.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()


def _look_at(path: Path, *, trust_remote_code: bool, allow_pickle: bool) -> None:
    """Says in plain words what is amiss with a folder, before transformers says it in its own."""
    config = path / "config.json"
    if not config.is_file():
        raise DataError(f"{path}: has no config.json, so it is no model of transformers; check the path")
    try:
        body = json.loads(config.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{config}: is not JSON ({error}); restore it") from error
    if not trust_remote_code and "AutoModelForMaskedLM" in body.get("auto_map", {}):
        raise ConfigError(f"{path}: comes with its own Python code; read it, and allow it with --trust-remote-code")
    names = [p.name for p in path.iterdir()]
    if not any(n.endswith(".safetensors") for n in names):
        if not any(n.endswith((".bin", ".pt", ".pth")) for n in names):
            raise DataError(f"{path}: holds no weights (model.safetensors); check the path")
        if not allow_pickle:
            raise ConfigError(
                f"{path}: its weights are pickle files, which can run any code when they are read; convert them with "
                "save_pretrained, or allow them with --allow-pickle"
            )


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_fit(model: nn.Module, source: str | os.PathLike[str] | None, metadata: Metadata, tokenizer_path: str) -> None:
    """Refuses a model that the rows were not made for.

    Where the model ships a tokenizer, each token of the data must have the same id in it; tokens that only the model has do no
    harm. The model must have an embedding and a logit for each id, and a position for each place in a row.

    Args:
        source: folder or name of the model; None where its tokenizer is not known.
        tokenizer_path: the data set's copy of its tokenizer.

    Raises:
        DataError: it does not fit.
    """
    facts, length = metadata.tokenizer, metadata.row_length
    if facts is None or length is None:
        raise DataError("the data set holds text, not token rows; pack it first")
    rows = vocabulary_rows(model)
    if rows < facts.vocabulary_size:
        raise DataError(
            f"the model has embeddings or logits for {rows:,} ids, the rows were made with a tokenizer of "
            f"{facts.vocabulary_size:,}: evaluate with the model's own tokenizer (pack again), or another model"
        )
    theirs = model_vocabulary(source) if source is not None else None
    if theirs is not None:
        if digest(theirs) != facts.vocabulary_sha256:
            _compare(data_vocabulary(tokenizer_path), theirs)
    elif rows < 2**60 and rows > -(-facts.vocabulary_size // _PADDED_TO) * _PADDED_TO:
        raise DataError(
            f"the model has {rows:,} embeddings, the rows were made with a tokenizer of {facts.vocabulary_size:,}, and it ships no "
            "tokenizer that could be compared: put the model's tokenizer files beside it"
        )
    positions = position_limit(model)
    if positions is not None and positions < length:
        raise DataError(
            f"the model has {positions} positions, the rows have {length}: pack again with --max-length {positions} or less"
        )


def _compare(ours: dict[str, int], theirs: dict[str, int]) -> None:
    wrong = [(i, token) for token, i in ours.items() if theirs.get(token) != i]
    if wrong:
        i, token = min(wrong)
        there = f"id {theirs[token]}" if token in theirs else "missing"
        raise DataError(
            f"the model's tokenizer is not that of the rows: {len(wrong):,} of {len(ours):,} tokens differ; the first, {token!r}, "
            f"is id {i} in the rows and {there} in the model; pack again with the model's tokenizer"
        )


def data_vocabulary(path: str) -> dict[str, int]:
    """The token-to-id map of a data set's copy of its tokenizer."""
    from tokenizers import Tokenizer

    try:
        found: dict[str, int] = Tokenizer.from_file(f"{path}/tokenizer.json").get_vocab(with_added_tokens=True)
    except Exception as error:  # `tokenizers` raises plain Exception
        raise DataError(f"{path}/tokenizer.json: cannot be read ({error}); restore it") from error
    return found


def model_vocabulary(source: str | os.PathLike[str]) -> dict[str, int] | None:
    """The token-to-id map that a model ships; None where it ships none."""
    from transformers.utils import cached_file

    found = cached_file(
        str(source),
        "tokenizer.json",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if found is not None:
        return data_vocabulary(str(Path(found).parent))
    names = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spm.model", "spiece.model")
    if Path(source).is_dir() and not any((Path(source) / n).is_file() for n in names):
        return None
    from transformers import AutoTokenizer

    try:
        vocabulary: dict[str, int] = AutoTokenizer.from_pretrained(str(source)).get_vocab()
    except Exception:  # there is none that can be read, and no rule about which error says so
        return None
    return vocabulary


def position_limit(model: nn.Module) -> int | None:
    """The longest row that a model takes; None where it does not say.

    RoBERTa counts positions from its padding id + 1, so that 514 embeddings are 512 positions.
    """
    from torch import nn

    for name, layer in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(layer, nn.Embedding):
            return layer.num_embeddings - (0 if layer.padding_idx is None else layer.padding_idx + 1)
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return int(limit) if limit else None
