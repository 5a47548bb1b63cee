"""Text to ids, by `tokenizers` or by an accelerated engine that is checked against it.

Whatever the engine, a special token typed in a text is ordinary text: the engines never match special tokens, and where a
model has such a piece of its own (XLM-R's `<s>`) the literal is split after its first character.

Shapes: T tokens of D documents.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, TokenizerError
from clozeline.packing.tokenizer import LoadedTokenizer, reload_tokenizer
from clozeline.store.sections import section

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clozeline.store.manifest import TokenizerFacts

    Ids = NDArray[np.uint32]
    Encode = Callable[[list[bytes]], tuple[Ids, NDArray[np.int64]]]

ENGINES = ("auto", "fast", "tokenizers")
# How many words nanotoken remembers. A million, its default, fill up as the corpus goes on, to 200 MB of memory; so many, to 40,
# and take no more time (20 MB of English: 0.18 s of CPU either way; the same text once more: 0.09 instead of 0.08).
_CACHED_WORDS = 2**17
_SAMPLE_EVERY = 97  # documents
_SAMPLE_BYTES = 4096  # of each shard, and a thousandth of what follows: 3 % of the time at most

# What tokenizers have been seen to disagree about.
_HARD_STRINGS = (
    "Plain words, one after another. Don't stop!",
    "  two  spaces\tand\ta tab, then a line\nfeed and a carriage\rreturn ",
    "café cafe\u0301 naïve ﬁligree ① ½ ß İstanbul ıI ΣΑΣ ς",
    "你好，世界。日本語のテキスト 한국어 العربية עברית हिन्दी ไทย",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 " + "😀" * 120,
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101 + " " + "supercalifragilistic" * 20,
    "zero\u200bwidth soft\u00adhyphen nul\x00 bell\x07 \ufffd \ufeff nbsp\u00a0 ideographic\u3000 \u2028 \u0085",
    '3.14159 1,000,000 2026-12-01 x_1 a-b a/b a\\b $5 50% #1 @me <b>&amp;</b> ``` http:// "quoted" ‘curly’ “double” — … 。',
    "##ing ##s [unused1] Ġword ▁word </w> <0x0A>",
    "\U0001d54f\U0001d550 \u0627\u0644\u0633\u0644\u0627\u0645\u0640\u0640 e\u0323\u0301 \u1100\u1161\u11a8 ﷺ",
)


class Engine:
    """A tokenizer ready to encode.

    Attributes:
        name: of what encodes.
        keeps_white_space: whether a word with a space before it is another token than without (byte-level tokenizers).

    Args:
        loaded: the tokenizer.
        engine: "tokenizers"; "fast" for an accelerated engine or an error; "auto" for whichever there is.

    Raises:
        TokenizerError: no accelerated engine takes this tokenizer ("fast"), or one disagrees with `tokenizers`.
    """

    def __init__(self, loaded: LoadedTokenizer, engine: str = "auto") -> None:
        if engine not in ENGINES:
            raise ConfigError(f"engine is {engine!r}: use auto, fast or tokenizers")
        self.facts = loaded.facts
        self._loaded = loaded
        body = json.loads(loaded.json)
        self.keeps_white_space = "ByteLevel" in json.dumps(body.get("pre_tokenizer"))
        self._literals = [t["content"] for t in body.get("added_tokens") or [] if t.get("special")]
        self._special = np.zeros(self.facts.vocabulary_size, bool)
        self._special[[i for i in self.facts.special_ids if i != self.facts.unk_id]] = True
        fast = None if engine == "tokenizers" else _fast_encoder(body)
        if fast is None and engine == "fast":
            raise TokenizerError(
                "--engine fast: no accelerated engine takes this tokenizer, or none is installed "
                "(pip install 'clozeline[fast]'); use --engine auto"
            )
        self.name = fast[0] if fast else "tokenizers"
        self._encode: Encode = fast[1] if fast else self._reference
        if fast:
            literals = [f"a {t} b{t}c" for t in self._literals]
            self.check([s.encode() for s in (*_HARD_STRINGS, *literals)])

    @cached_property
    def _reference(self) -> Encode:
        return _tokenizers_encoder(self.with_offsets)

    @cached_property
    def _splitting(self) -> Encode:
        """`tokenizers`, with every special literal split after its first character."""
        return _tokenizers_encoder(self.splitting_with_offsets)

    @property
    def _splitting_json(self) -> str:
        body: dict[str, Any] = json.loads(self._loaded.json)
        heads: dict[str, list[str]] = {}
        for literal in self._literals:
            if len(literal) > 1:
                heads.setdefault(literal[0], []).append(literal[1:])
        pattern = "|".join(f"{re.escape(head)}(?={'|'.join(map(re.escape, rests))})" for head, rests in heads.items())
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "MergedWithPrevious", "invert": False}
        before = [body["pre_tokenizer"]] if body.get("pre_tokenizer") else []
        body["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*before, split]}
        return json.dumps(body)

    @cached_property
    def with_offsets(self) -> Any:
        """`tokenizers` itself, which knows of words and offsets."""
        return plain_tokenizer(self._loaded.json)

    @cached_property
    def splitting_with_offsets(self) -> Any:
        """The same, with every special literal split."""
        return plain_tokenizer(self._splitting_json)

    def encode(self, texts: list[bytes]) -> tuple[Ids, NDArray[np.int64], Counter[str]]:
        """Ids of documents.

        Args:
            texts: D documents, valid UTF-8.

        Returns:
            uint32 (T,) ids, int64 (D,) tokens of each document, and what there is to count.
        """
        with section("tokenize"):
            ids, lengths = self._encode(texts)
        counts: Counter[str] = Counter()
        if len(ids) and int(ids.max()) >= self.facts.vocabulary_size:
            raise TokenizerError(
                f"the {self.name} engine gave id {int(ids.max())}, the vocabulary ends at {self.facts.vocabulary_size - 1}"
            )
        suspects = self._with_special_literals(texts, ids, lengths)
        if suspects:
            starts = np.concatenate(([0], np.cumsum(lengths)))
            again, again_lengths = self._splitting([texts[i] for i in suspects])
            pieces = np.split(again, np.cumsum(again_lengths)[:-1])
            parts = [ids[starts[i] : starts[i + 1]] for i in range(len(texts))]
            for i, piece in zip(suspects, pieces, strict=True):
                counts["documents_with_special_literals_split"] += len(piece) != len(parts[i]) or bool(
                    (piece != parts[i]).any()
                )
                parts[i] = piece
            ids, lengths = np.concatenate(parts), np.array([len(p) for p in parts], np.int64)
            still = np.flatnonzero(self._special[ids])
            if len(still):
                raise TokenizerError(
                    f"a text makes the tokenizer emit the special id {int(ids[still[0]])}, and splitting its literal did not help"
                )
        if self.facts.unk_id is not None:
            counts["unknown_tokens"] = int(np.count_nonzero(ids == self.facts.unk_id))
        return ids, lengths, counts

    def _with_special_literals(self, texts: list[bytes], ids: Ids, lengths: NDArray[np.int64]) -> list[int]:
        """Documents in whose ids a special token stands that was typed, by their numbers."""
        at = np.flatnonzero(self._special.take(ids, mode="clip"))  # checked before: none lies outside
        unk = self._loaded.unk_token
        typed = unk.encode() if unk else b""
        ends = np.cumsum(lengths)
        suspects = set(np.searchsorted(ends, at, side="right").tolist())
        if typed and self.facts.unk_id is not None:
            unknown = np.flatnonzero(ids == self.facts.unk_id)
            suspects |= {i for i in set(np.searchsorted(ends, unknown, side="right").tolist()) if typed in texts[i]}
        return sorted(suspects)

    def check(self, texts: list[bytes]) -> None:
        """Compares with `tokenizers` on these texts.

        Raises:
            TokenizerError: the engines differ; shows the text.
        """
        ids, lengths = self._encode(texts)
        wanted, wanted_lengths = self._reference(texts)
        if np.array_equal(ids, wanted) and np.array_equal(lengths, wanted_lengths):
            return
        for text in texts:
            (one, _), (other, _) = self._encode([text]), self._reference([text])
            if not np.array_equal(one, other):
                raise TokenizerError(
                    f"the {self.name} engine and `tokenizers` differ on {text[:200].decode(errors='replace')!r}; "
                    "use --engine tokenizers, and report this text"
                )
        raise TokenizerError(
            f"the {self.name} engine gives other ids for a batch than for its texts; use --engine tokenizers"
        )


class Sampler:
    """Checks the engine on a few documents of a shard, from its beginning to its end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen = 0
        self._budget = float(_SAMPLE_BYTES)

    def see(self, texts: list[bytes]) -> None:
        if self._engine.name == "tokenizers":
            return
        first = -self._seen % _SAMPLE_EVERY
        self._seen += len(texts)
        for text in texts[first::_SAMPLE_EVERY]:
            if len(text) <= self._budget:
                self._budget -= len(text)
                with section("check engine"):
                    self._engine.check([text])
            self._budget += _SAMPLE_EVERY * len(text) / 1000


def seconds_per_mb(loaded: LoadedTokenizer, engine: str) -> float:
    """About what one core takes to read, tokenize and pack a megabyte of text."""
    module = {"WordPiece": "nanotoken", "BPE": "gigatoken"}.get(json.loads(loaded.json)["model"].get("type"))
    return 0.015 if engine != "tokenizers" and module and find_spec(module) else 0.4


@lru_cache(maxsize=2)
def worker_engine(path: str, facts: TokenizerFacts, engine: str) -> Engine:
    """The engine of this process, loaded once.

    Raises:
        TokenizerError: the tokenizer has changed since the run was planned.
    """
    with section("start engine"):
        return Engine(reload_tokenizer(path, facts), engine)


def plain_tokenizer(text: str) -> Any:
    """`tokenizers` for the content of a tokenizer.json, made to do nothing but turn text into ids."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None
    # The special tokens stay in the file, since ids of other added tokens are counted on from them, but are not matched.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _tokenizers_encoder(tokenizer: Any) -> Encode:
    def encode(texts: list[bytes]) -> tuple[Ids, NDArray[np.int64]]:
        encodings = tokenizer.encode_batch_fast([t.decode() for t in texts], add_special_tokens=False)
        parts = [np.array(e.ids, np.uint32) for e in encodings]
        ids = np.concatenate(parts) if parts else np.empty(0, np.uint32)
        return ids, np.array([len(p) for p in parts], np.int64)

    return encode


def _fast_encoder(body: dict[str, Any]) -> tuple[str, Encode] | None:
    """The accelerated engine for this kind of model, when it is installed and takes the tokenizer."""
    plain = _plain(body)
    plain["added_tokens"] = [t for t in plain.get("added_tokens") or [] if not t.get("special")]
    kind = plain["model"].get("type")
    try:
        if kind == "WordPiece":
            import nanotoken

            nanotoken.set_cache_entries(_CACHED_WORDS)
            wordpiece = nanotoken.Tokenizer.from_json(json.dumps(plain))

            def encode_wordpiece(texts: list[bytes]) -> tuple[Ids, NDArray[np.int64]]:
                ragged = wordpiece.encode_batch(texts, add_special_tokens=False, parallel=False)
                return ragged.ids, np.diff(ragged.offsets)

            return "nanotoken", encode_wordpiece
        if kind == "BPE":
            import gigatoken

            bpe = gigatoken.Tokenizer.from_json(json.dumps(plain))

            def encode_bpe(texts: list[bytes]) -> tuple[Ids, NDArray[np.int64]]:
                layout = bpe.encode_batch(texts, parallel=False).layout
                offsets = np.asarray(layout.offsets.data, np.int64)
                return np.asarray(layout.content.data)[offsets[0] : offsets[-1]], np.diff(offsets)

            return "gigatoken", encode_bpe
    except ImportError:
        return None
    except Exception:  # each engine has its own way to say that it does not take a tokenizer
        return None
    return None


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer without what does not belong to turning text into ids: truncation, padding, template, BPE dropout."""
    model = {**body["model"], "dropout": None} if "dropout" in body["model"] else body["model"]
    return {**body, "model": model, "post_processor": None, "truncation": None, "padding": None}
