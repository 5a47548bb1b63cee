"""Stage `vocab`: text shards in, a tokenizer directory out that `AutoTokenizer` loads. The training is that of `tokenizers`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from clozeline.errors import ConfigError, DestinationError, InputError
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard
from clozeline.store.location import WORK, find_location
from clozeline.store.overlap import refuse_covered, refuse_nested

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

Kind = Literal["wordpiece", "bpe", "unigram"]
KINDS = ("wordpiece", "bpe", "unigram")
_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
)  # in the order in which they are written
_BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
_ROBERTA = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabOptions:
    """What kind of tokenizer to train.

    Attributes:
        kind: "wordpiece" (BERT), byte-level "bpe" (RoBERTa) or "unigram" (XLM-R).
        vocabulary_size: tokens, the special ones included.
        lowercase: lower-case the text and strip accents; None for the habit of the kind (WordPiece yes, others no).
        min_frequency: a pair must occur that often to become a token (WordPiece, BPE).
        alphabet: at most so many characters, the most frequent ones, become tokens of their own (WordPiece);
            None for 6,000 or half the vocabulary.
        max_length: what the tokenizer is said to be made for.
    """

    kind: Kind = "wordpiece"
    vocabulary_size: int = 30_522
    lowercase: bool | None = None
    min_frequency: int = 2
    alphabet: int | None = None
    max_length: int = 512

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind is {self.kind!r}: use wordpiece, bpe or unigram")
        if self.vocabulary_size < 300:
            raise ConfigError(f"vocabulary_size is {self.vocabulary_size}: at least 300 is needed")
        if self.min_frequency < 1:
            raise ConfigError(f"min_frequency is {self.min_frequency}: at least 1 is needed")
        if self.alphabet is not None and not 26 <= self.alphabet < self.vocabulary_size:
            raise ConfigError(
                f"alphabet is {self.alphabet}: it lies between 26 and vocabulary_size, {self.vocabulary_size}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabResult:
    """A tokenizer that was trained.

    Attributes:
        path: its folder.
        vocabulary_size: tokens it has; fewer than asked for where the text has no more to offer.
        documents: it was trained on.
        sha256: of its tokenizer.json.
    """

    path: str
    kind: str
    vocabulary_size: int
    documents: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def vocab(
    text: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    options: VocabOptions | None = None,
    *,
    force: bool = False,
) -> VocabResult:
    """Trains a tokenizer.

    Args:
        text: what `shard` wrote.
        dest: a folder to create.
        force: replace the tokenizer that is there.

    WordPiece and byte-level BPE are the same for the same text; Unigram is not quite (its trainer sums in an order that differs
    from run to run), so keep the folder.

    Raises:
        DataError: `text` is no finished text data set, or damaged.
        DestinationError: `dest` is taken, or holds more than a tokenizer.
        InputError: `text` and `dest` lie one inside the other; the text is too little.
    """
    options = options or VocabOptions()
    data = Data(text, "sharding")
    location = find_location(dest)
    refuse_nested(dest, [text])
    refuse_covered(dest, [text])
    present = [name for name in location.names() if name != WORK]
    others = [name for name in present if name not in _FILES]
    if others:
        raise DestinationError(
            f"{dest}: holds {others[0]}, which `vocab` does not write; choose another DEST or remove it yourself"
        )
    if present and not force:
        raise DestinationError(f"{dest}: holds a tokenizer; choose another DEST, or --force to replace it")
    roles = _BERT if options.kind == "wordpiece" else _ROBERTA
    tokenizer = _train_wordpiece(data, options) if options.kind == "wordpiece" else _train_pieces(data, options)
    if tokenizer.get_vocab_size() <= len(set(roles.values())):
        raise InputError(f"{text}: holds too little text to learn a token from")
    _add_template(tokenizer, options.kind, roles)
    content = tokenizer.to_str(pretty=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": options.max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        **roles,
    }
    with location.lock():
        for name in present:
            location.remove(name)
        for name, body in zip(_FILES, (_json(config), _json(roles), content.encode()), strict=True):
            location.write(name, body)
        location.remove_work()
    return VocabResult(
        path=str(dest),
        kind=options.kind,
        vocabulary_size=tokenizer.get_vocab_size(),
        documents=data.manifest.rows,
        sha256=hashlib.sha256(content.encode()).hexdigest(),
    )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _texts(data: Data) -> Iterator[str]:
    for entry in data.manifest.shards:
        for _, _, stream in TextShard(location=data.location, entry=entry).read():
            for documents in stream:
                yield from (text.decode() for text in documents.texts)


def _special(roles: dict[str, str]) -> list[Any]:
    from tokenizers import AddedToken

    return [AddedToken(token, special=True, normalized=False) for token in dict.fromkeys(roles.values())]


def _train_wordpiece(data: Data, options: VocabOptions) -> Any:
    """WordPiece, the same for the same text.

    The trainer numbers the continuing characters (`##a`) as it meets them in a hash table whose order differs from run to run,
    and breaks ties by number. So they are found out first, with the alphabet, and given to it in a fixed order.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    def untrained() -> Any:
        tokenizer: Any = Tokenizer(models.WordPiece(unk_token=_BERT["unk_token"]))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=options.lowercase is not False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer

    tokenizer = untrained()
    counts: Counter[str] = Counter()
    for text in _texts(data):
        counts.update(tokenizer.normalizer.normalize_str(text))
    limit = options.alphabet or min(6000, options.vocabulary_size // 2)
    alphabet = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:limit]

    def train(size: int, first: list[Any]) -> Any:
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=options.min_frequency,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            special_tokens=first,
            show_progress=False,
        )
        tokenizer = untrained()
        tokenizer.train_from_iterator(_texts(data), trainer, length=data.manifest.rows)
        return tokenizer

    special = _special(_BERT)
    continuing = sorted(token for token in train(0, special).get_vocab() if token.startswith("##") and len(token) == 3)
    trained = train(options.vocabulary_size, [*special, *continuing])
    body = json.loads(trained.to_str())
    body["added_tokens"] = [t for t in body["added_tokens"] if t["content"] in _BERT.values()]
    return Tokenizer.from_str(json.dumps(body))


def _train_pieces(data: Data, options: VocabOptions) -> Any:
    """Byte-level BPE or Unigram."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    lower = [normalizers.Lowercase(), normalizers.NFD(), normalizers.StripAccents()] if options.lowercase else []
    tokenizer: Any
    trainer: Any
    if options.kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.Sequence([*lower, normalizers.NFC()])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=options.vocabulary_size,
            min_frequency=options.min_frequency,
            special_tokens=_special(_ROBERTA),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        spaces = normalizers.Replace(Regex(" {2,}"), " ")
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([*lower, normalizers.NFKC(), spaces])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        )
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=options.vocabulary_size,
            special_tokens=_special(_ROBERTA),
            unk_token=_ROBERTA["unk_token"],
            show_progress=False,
        )
    tokenizer.train_from_iterator(_texts(data), trainer, length=data.manifest.rows)
    return tokenizer


def _add_template(tokenizer: Any, kind: str, roles: dict[str, str]) -> None:
    """`[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`; two separators between RoBERTa's segments."""
    from tokenizers import processors

    first, last = roles["cls_token"], roles["sep_token"]
    middle = f"{last} $B:1 {last}:1" if kind == "wordpiece" else f"{last} {last} $B {last}"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {middle}",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (first, last)],
    )
