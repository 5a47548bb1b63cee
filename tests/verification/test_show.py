"""`show` prints what a data set is and what its rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result
from tokenizers import Tokenizer

from clozeline.cli.main import main
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.store.dataset import Data
from clozeline.verification.rows import RowDecoder


def show(*arguments: object, color: bool = False) -> Result:
    result = CliRunner().invoke(main, ["show", *map(str, arguments)], color=color)
    assert result.exit_code in (0, 2), result.output
    return result


def test_text_is_shown_as_it_is(prepared: Path) -> None:
    out = show(prepared / "text", "--rows", 2).stdout
    assert "60 documents" in out
    assert "document 1 word7 word8 word9" in out


def test_packed_rows_read_as_the_text(prepared: Path) -> None:
    assert "[CLS] document 0 [SEP] document 1 word7 word" in show(prepared / "packed", "--rows", 1).stdout


def test_every_selected_position_is_marked_by_its_action(prepared: Path) -> None:
    out = show(prepared / "masked", "--rows", 3, "-q").stdout
    data = Data(prepared / "masked")
    ids, labels = (data.shard(0).take(name, np.arange(3)) for name in ("input_ids", "labels"))
    selected = labels != -100
    assert out.count("[MASK=") == (selected & (ids == 4)).sum() > 0
    assert out.count("[RANDOM=") == (selected & (ids != 4) & (ids != labels)).sum()
    assert out.count("[KEEP]") == (selected & (ids == labels)).sum()


def test_json_gives_pieces_and_facts(prepared: Path) -> None:
    body = json.loads(show(prepared / "masked", "--rows", 1, "--row", 4, "--copy", 1, "--json").stdout)
    assert (body["stage"], body["copies"], body["seed"]) == ("masking", 2, 5)
    ids = Data(prepared / "masked").shard(3).take("labels", np.array([4]))[0]
    assert [p["action"] in ("mask", "random", "keep") for p in body["shown"][0]["pieces"]] == (ids != -100).tolist()


def test_colours_only_where_they_are_shown(prepared: Path) -> None:
    assert "\x1b[" in show(prepared / "masked", "--rows", 1, color=True).stdout
    assert "\x1b[" not in show(prepared / "masked", "--rows", 1).stdout


def test_a_copy_that_is_asked_for_is_shown_or_refused(prepared: Path) -> None:
    """`--copy 5` of two copies said nothing, for want of --row."""
    assert "row 0, copy 1" in show(prepared / "masked", "--copy", 1).stdout
    assert "has no copy 5" in show(prepared / "masked", "--copy", 5).stderr


def test_diff_shows_two_maskings_of_one_row(prepared: Path) -> None:
    out = show(prepared / "masked", "--diff", "--row", 2, "-q").stdout
    first, second = out.split("row 2, copy 0")[1].split("row 2, copy 1")
    assert first.strip() != second.strip()

    def unmasked(text: str) -> str:
        return re.sub(
            r"\[MASK=(.*?[^]]|\])\]|\S*?\[RANDOM=(.*?)\]|\[KEEP\]", lambda m: m[1] or m[2] or "", text.strip()
        )

    assert len(unmasked(first).split()) == len(unmasked(second).split())
    assert "compares two maskings" in show(prepared / "packed", "--diff").stderr


def test_a_page_of_rows_stands_on_its_own(prepared: Path, tmp_path: Path) -> None:
    show(prepared / "masked", "--diff", "--html", tmp_path / "rows.html")
    page = (tmp_path / "rows.html").read_text()
    assert page.count('<div class="row"') == 2
    assert 'class="mask"' in page
    assert not re.search(r'(src|href)="(?!data:)', page)


def test_rows_and_copies_that_are_not_there_are_named(prepared: Path) -> None:
    assert "has no copy 7; there are 2" in show(prepared / "masked", "--rows", 1, "--copy", 7).stderr
    assert "has no row 9999" in show(prepared / "masked", "--rows", 1, "--row", 9999).stderr


def test_tokens_of_every_kind_of_model_read_as_text(shared: Path) -> None:
    for name in ("roberta-base", "bert-base-cased", "xlm-roberta-base-reconstructed"):
        loaded = load_tokenizer(shared / "tokenizers" / name)
        text = "Plain words, don't naïve café"
        ids = Tokenizer.from_str(loaded.json).encode(text, add_special_tokens=False).ids
        pieces = RowDecoder(loaded.json, loaded.facts).row(np.array(ids), None, len(ids))
        read = "".join((" " if p.space else "") + p.text for p in pieces).strip()
        assert read.replace(" ", "") == text.replace(" ", ""), name
