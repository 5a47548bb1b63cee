"""Reads a tokenizer directory: what it is, without `transformers` (whose import alone costs three seconds)."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozeline.errors import TokenizerError
from clozeline.store.location import find_location
from clozeline.store.manifest import TokenizerFacts, digest, to_bits, to_ranges
from clozeline.store.objects import is_url

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
_ROLES = ("cls_token", "sep_token", "pad_token", "unk_token", "mask_token", "bos_token", "eos_token")
_MANY = ("additional_special_tokens", "extra_special_tokens")
_USUAL = {  # tried in order where no configuration names the token
    "mask_token": ("[MASK]", "<mask>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "sep_token": ("[SEP]", "</s>"),
    "cls_token": ("[CLS]", "<s>"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTokenizer:
    """A tokenizer and its files.

    Attributes:
        json: the content of tokenizer.json.
        facts: what later stages need of it.
        files: all its files by name, to be copied beside the data.
        unk_token: its text, None where there is none.
    """

    json: str
    facts: TokenizerFacts
    files: dict[str, bytes]
    unk_token: str | None


def load_tokenizer(source: str | os.PathLike[str]) -> LoadedTokenizer:
    """A tokenizer by its folder, its tokenizer.json, the URL of either, or a name on the hub.

    Raises:
        TokenizerError: there is none, or it lacks what masked-language-model rows need.
    """
    files = _read_files(source)
    try:
        return _loaded(source, files)
    except TokenizerError:
        raise
    except BaseException as error:
        # `tokenizers` raises plain Exception, or a panic, which is none, for files that it does not expect.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{source}: tokenizer.json cannot be read ({error}); save the tokenizer again") from error


def _loaded(source: str | os.PathLike[str], files: dict[str, bytes]) -> LoadedTokenizer:
    from tokenizers import Tokenizer

    text = files["tokenizer.json"].decode()
    body = json.loads(text)
    tokenizer: Any = Tokenizer.from_str(text)
    vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    roles, named = _named_tokens(files, vocabulary)
    special = {vocabulary[token] for token in named if token in vocabulary}
    special |= {int(t["id"]) for t in body.get("added_tokens") or [] if t.get("special")}
    ordinary = sorted(set(vocabulary.values()) - special)
    mask = vocabulary.get(roles.get("mask_token", ""))
    if mask is None:
        raise TokenizerError(
            f"{source}: has no mask token, so nothing can be masked; add one, or choose a tokenizer made for masked LMs"
        )
    pad = vocabulary.get(roles.get("pad_token", ""))
    if pad is None:
        raise TokenizerError(
            f"{source}: has no padding token, which the last row of a shard needs; add one to the tokenizer"
        )
    separator = vocabulary.get(roles.get("sep_token", roles.get("eos_token", "")))
    if separator is None:
        raise TokenizerError(
            f"{source}: has neither a separator nor an end token to put between documents; add one to the tokenizer"
        )
    if not ordinary:
        raise TokenizerError(f"{source}: every token is special, none is left to predict")
    prefix, suffix = _template(tokenizer, special)
    between = _between(tokenizer, prefix, suffix, special)
    unk_token = roles.get("unk_token")
    facts = TokenizerFacts(
        sha256=hashlib.sha256(files["tokenizer.json"]).hexdigest(),
        vocabulary_sha256=digest(vocabulary),
        vocabulary_size=max(vocabulary.values()) + 1,
        mask_id=mask,
        pad_id=pad,
        unk_id=vocabulary.get(unk_token) if unk_token else None,
        separator_id=separator,
        prefix_ids=tuple(prefix),
        suffix_ids=tuple(suffix),
        pair_ids=(separator,) if between is None else tuple(between),
        special_ids=tuple(sorted(special)),
        ordinary_ranges=tuple((a, b) for a, b in to_ranges(ordinary)),
        continuing=_continuing(body["model"], special),
    )
    return LoadedTokenizer(json=text, facts=facts, files=files, unk_token=unk_token)


def _continuing(model: dict[str, Any], special: set[int]) -> str | None:
    """Ids that continue a word, where the model marks them."""
    prefix = model.get("continuing_subword_prefix")
    if model.get("type") != "WordPiece" or not prefix:
        return None
    continuing = {i for token, i in model["vocab"].items() if token.startswith(prefix) and token != prefix}
    return to_bits(continuing - special)


def reload_tokenizer(source: str, facts: TokenizerFacts) -> LoadedTokenizer:
    """A tokenizer whose facts are known, without finding them out again: for workers.

    Raises:
        TokenizerError: it is no longer the one that the facts are of.
    """
    files = _read_files(source)
    if hashlib.sha256(files["tokenizer.json"]).hexdigest() != facts.sha256:
        raise TokenizerError(f"{source}: changed while the run was going on; run again with --force")
    text = files["tokenizer.json"].decode()
    unk_token = None if facts.unk_id is None else _token_text(json.loads(text), facts.unk_id)
    return LoadedTokenizer(json=text, facts=facts, files=files, unk_token=unk_token)


def _token_text(body: dict[str, Any], token_id: int) -> str:
    """The token of an id that exists."""
    for token in body.get("added_tokens") or []:
        if token["id"] == token_id:
            return str(token["content"])
    vocabulary = body["model"]["vocab"]  # token -> id; for Unigram a list of token and score
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((t[0], i) for i, t in enumerate(vocabulary))
    return str(next(token for token, i in pairs if i == token_id))


def _read_files(source: str | os.PathLike[str]) -> dict[str, bytes]:
    if is_url(source):
        return _from_url(str(source).rstrip("/"))
    path = Path(source)
    if not os.fspath(source):
        raise TokenizerError("the tokenizer's name is empty; give a folder, its tokenizer.json, or a name on the hub")
    if path.is_file():
        return {"tokenizer.json": path.read_bytes()}
    if path.is_dir():
        files = {name: (path / name).read_bytes() for name in TOKENIZER_FILES if (path / name).is_file()}
        if "tokenizer.json" not in files:
            raise TokenizerError(
                f"{source}: has no tokenizer.json; make one with "
                f"transformers.AutoTokenizer.from_pretrained({str(source)!r}).save_pretrained(FOLDER)"
            )
        return files
    if str(source).startswith((".", "/", "~")) or str(source).count("/") > 1:
        raise TokenizerError(f"{source}: no such tokenizer folder or file; check the path")
    return _from_hub(str(source))


def _from_url(url: str) -> dict[str, bytes]:
    folder, _, name = url.rpartition("/")
    single = name.endswith(".json")
    place = find_location(folder if single else url)
    present = place.names()
    if (name if single else "tokenizer.json") not in present:
        raise TokenizerError(f"{url}: no tokenizer.json there; give the URL of a folder that holds one, or its own")
    if single:
        return {"tokenizer.json": place.read(name)}
    return {file: place.read(file) for file in TOKENIZER_FILES if file in present}


def _from_hub(name: str) -> dict[str, bytes]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    files = {}
    for file in TOKENIZER_FILES:
        try:
            files[file] = Path(hf_hub_download(name, file)).read_bytes()
        except Exception as error:
            unreachable = isinstance(error, LocalEntryNotFoundError)  # and not in the cache
            if isinstance(error, EntryNotFoundError) and (files or not unreachable):
                continue
            raise TokenizerError(
                f"{name}: no such folder, and not to be had from the hub ({error}); check the name"
            ) from error
    if "tokenizer.json" not in files:
        raise TokenizerError(
            f"{name}: the hub has no tokenizer.json for it; choose another, or save one with `save_pretrained`"
        )
    return files


def _named_tokens(files: dict[str, bytes], vocabulary: dict[str, int]) -> tuple[dict[str, str], set[str]]:
    """Special tokens by role, and all that any configuration file names."""
    roles: dict[str, str] = {}
    named: set[str] = set()
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        config = json.loads(files.get(name, b"{}"))
        for role in _ROLES:
            token = _content(config.get(role))
            if token is not None:
                roles.setdefault(role, token)
                named.add(token)
        for key in _MANY:
            extra = config.get(key) or []
            named.update(
                t for t in map(_content, extra.values() if isinstance(extra, dict) else extra) if t is not None
            )
    for role, tokens in _USUAL.items():
        if role not in roles:
            for token in tokens:
                if token in vocabulary:
                    roles[role] = token
                    named.add(token)
                    break
    return roles, named


def _content(token: Any) -> str | None:
    """A token is written as a string or as an object with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _template(tokenizer: Any, special: set[int]) -> tuple[list[int], list[int]]:
    """What the tokenizer's own post-processor puts before and after one sequence."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a").ids
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            prefix, suffix = whole[:start], whole[start + len(bare) :]
            if set(prefix) | set(suffix) <= special:
                return prefix, suffix
    raise TokenizerError(
        "the tokenizer's template puts something other than special tokens around a text, which rows cannot have"
    )


def _between(tokenizer: Any, prefix: list[int], suffix: list[int], special: set[int]) -> list[int] | None:
    """What the post-processor puts between two sequences; None where it has no template for two."""
    first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    whole = tokenizer.encode("a", "b").ids
    before, after = prefix + first, second + suffix
    between: list[int] = whole[len(before) : len(whole) - len(after)]
    fits = whole == before + between + after and between and set(between) <= special
    return between if fits else None
