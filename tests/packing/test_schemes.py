"""What every scheme promises: no token lost, none invented, none where it does not belong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed import SERIAL, read_rows, texts_of, tokens_of, write_text

import clozeline
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.store.dataset import Data

SCHEMES = ["concat", "sentences", "doc-sentences", "documents", "best-fit", "nsp", "sop"]


@st.composite
def documents(draw: st.DrawFn) -> list[str]:
    """Documents of 0 to 5,000 words in lines of 1 to 80, a few with what must not become a special id."""
    lengths = draw(st.lists(st.sampled_from([0, 1, 2, 5, 6, 7, 14, 40, 62, 63, 300, 5000]), min_size=2, max_size=14))
    per_line = draw(st.integers(1, 80))
    oddity = draw(st.sampled_from(["[MASK]", "[SEP]", "[UNK]", "unknown", "w7"]))
    texts = []
    for number, length in enumerate(lengths):
        tokens = [f"w{(7 * number + t) % 300}" for t in range(length)]
        if tokens and number % 3 == 0:
            tokens[length // 2] = oddity
        lines = [" ".join(tokens[i : i + per_line]) for i in range(0, length, per_line)]
        texts.append("\n".join(lines) or "\x07")  # a control character is a text without a token
    return texts


def options_of(draw: st.DrawFn, scheme: str) -> dict[str, object]:
    length = draw(st.integers(8, 64))
    options: dict[str, object] = {"packing": "pairs" if scheme in ("nsp", "sop") else scheme, "max_length": length}
    options["min_document_tokens"] = draw(st.sampled_from([1, 3]))
    options["max_document_tokens"] = draw(st.sampled_from([None, 100]))
    options["provenance"] = True
    options["boundaries"] = scheme not in ("nsp", "sop")
    if scheme in ("sentences", "doc-sentences", "nsp", "sop"):
        options["sentences"] = "lines"
    if scheme in ("nsp", "sop"):
        options |= {"objective": scheme, "seed": draw(st.integers(0, 3)), "pair_copies": draw(st.integers(1, 2))}
    if scheme in ("concat", "sentences", "best-fit"):
        options |= {"separator": draw(st.booleans()), "add_prefix": draw(st.booleans())}
    if scheme in ("concat", "sentences"):
        options["remainder"] = draw(st.sampled_from(["pad", "drop"]))
    if scheme == "documents":
        options |= {"stride": draw(st.integers(0, 5)), "min_tokens": draw(st.sampled_from([1, 4]))}
    if scheme in ("documents", "doc-sentences", "nsp", "sop") and draw(st.booleans()):
        options["bins"] = tuple(sorted({8, max(8, length // 2), length}))
    return options


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), texts=documents())
def test_rows_hold_every_token_that_the_ledger_does_not_name(
    scheme: str, data: st.DataObject, texts: list[str], words: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("pack")
    options = clozeline.PackOptions(**data.draw(st.composite(options_of)(scheme)))
    text = write_text(place, texts)
    try:
        clozeline.pack(text, place / "packed", words, options, SERIAL)
    except clozeline.InputError:
        return  # nothing is left of so little text, and that is said
    packed = Data(place / "packed")
    facts = load_tokenizer(words).facts
    ledger = packed.manifest.ledger
    known = tokens_of(words, texts_of(text), options)

    frame = set(facts.prefix_ids + facts.suffix_ids)
    seen: dict[str, Counter[int]] = {name: Counter() for name in known}
    order: dict[str, list[int]] = {name: [] for name in known}
    total = text_tokens = padding = 0
    for row in read_rows(place / "packed"):
        used = int(row.columns["num_tokens"])
        assert used <= len(row.ids) <= options.max_length
        assert set(row.ids[used:]) <= {facts.pad_id}
        assert row.columns["attention_mask"].tolist() == [1] * used + [0] * (len(row.ids) - used)
        is_text = np.zeros(len(row.ids), bool)
        for s in row.stretches:
            place_of = slice(s["start"], s["start"] + s["tokens"])
            first = s["first_token"]
            assert not is_text[place_of].any()
            is_text[place_of] = True
            assert row.ids[place_of] == known[s["doc_id"]][first : first + s["tokens"]]
            seen[s["doc_id"]].update(range(first, first + s["tokens"]))
            order[s["doc_id"]].append(first)
            text_tokens += s["tokens"]
        assert not {i for i in np.array(row.ids)[is_text].tolist() if i in facts.special_ids} - {facts.unk_id}
        assert set(np.array(row.ids[:used])[~is_text[:used]].tolist()) <= frame
        if options.boundaries:
            assert row.columns["document_lengths"].sum() == used
            assert np.count_nonzero(row.columns["document_lengths"]) == max(1, len(row.stretches))
        total += used
        padding += len(row.ids) - used

    assert (ledger.tokens.difference, ledger.documents.difference) == (0, 0)
    assert (total, padding) == (ledger.tokens.out, ledger.counts["padding"])
    framing = ledger.tokens.added["template"] + ledger.tokens.added["separators"]
    assert total - text_tokens == framing
    # What is missing is what was dropped, and what is there again is what was repeated.
    missing = sum(len(ids) - len(seen[name]) for name, ids in known.items())
    repeated = sum(seen_of.total() - len(seen_of) for seen_of in seen.values())
    added = ledger.tokens.added.total() - framing
    dropped = sum(n for reason, n in ledger.tokens.dropped.items() if not reason.startswith("documents_too_"))
    assert repeated - missing == added - dropped
    if scheme not in ("nsp", "sop"):
        assert (missing, repeated) == (dropped, added)
    if options.packing not in ("pairs", "best-fit") and not options.bins:
        assert all(starts == sorted(starts) for starts in order.values())
