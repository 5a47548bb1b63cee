"""Documents from a source to tokens, with the account of what came in and what was dropped on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clozeline.packing.engines import Sampler
from clozeline.packing.splitting import make_splitter
from clozeline.packing.tokens import whole_documents
from clozeline.packing.words import WordFinder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clozeline.packing.engines import Engine
    from clozeline.packing.options import PackOptions
    from clozeline.packing.tokens import Columns, TokenDocuments
    from clozeline.store.documents import Documents
    from clozeline.store.ledger import Ledger


def read_tokens(
    stream: Iterable[Documents], engine: Engine, options: PackOptions, ledger: Ledger
) -> Iterator[tuple[TokenDocuments, Documents]]:
    """Tokenizes the documents of a shard, batch by batch; `numbers` of the tokens count through the shard.

    Args:
        ledger: told of everything but what a packer adds and drops.
    """
    sampler = Sampler(engine)
    words = WordFinder(engine, options.word_starts) if options.word_starts else None
    split = make_splitter(options.sentences, options.language) if options.by_sentences else None
    seen = 0
    for batch in stream:
        texts = batch.texts
        if split is not None:
            parts = [split(text.decode()) for text in texts]
            texts = [(s if engine.keeps_white_space else s.strip()).encode() for part in parts for s in part]
        sampler.see(texts)
        ids, lengths, counts = engine.encode(texts)
        ledger.counts.update(counts)
        columns: Columns = {"input_ids": ids}
        if words is not None:
            columns["word_starts"] = words.starts(texts, ids, lengths)
        sentences = None
        if split is not None:
            sentences = lengths
            owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            lengths = np.bincount(owner, weights=sentences, minlength=len(parts)).astype(np.int64)
        tokens = whole_documents(
            columns,
            lengths,
            sentences,
            seen,
            ledger,
            at_least=options.min_document_tokens,
            at_most=options.max_document_tokens,
        )
        seen += len(lengths)
        yield tokens, batch
