"""The HTML report: the verdict first, nothing from elsewhere, and no complaint from a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from forgery import forge

from clozeline.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def page(prepared: Path, tmp_path: Path) -> Path:
    result = CliRunner().invoke(
        main, ["verify", str(prepared / "masked"), "--html", str(tmp_path / "report.html"), "-j", "1"]
    )
    assert result.exit_code == 0, result.output
    return tmp_path / "report.html"


def test_the_verdict_stands_before_everything_else(page: Path) -> None:
    body = page.read_text().split("<body>")[1]
    assert body.index("Every check holds.") < body.index("<table") < body.index("<svg") < body.index('class="row"')


def test_nothing_comes_from_elsewhere_and_every_figure_is_named(page: Path) -> None:
    text = page.read_text()
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) == 6
    ids = []
    for figure in figures:
        tree = ElementTree.fromstring(figure)
        assert tree.get("role") == "img"
        assert tree.get("aria-label")
        ids += [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids))


def test_what_is_wrong_is_named_in_the_verdict(work: Path, tmp_path: Path) -> None:
    def all_masks(copy: int, shard: int, block: dict[str, np.ndarray]) -> np.ndarray:
        return np.where(block["labels"] == -100, block["input_ids"], 4).astype(np.uint16)

    forge(work / "masked", input_ids=all_masks)
    result = CliRunner().invoke(main, ["verify", str(work / "masked"), "--html", str(tmp_path / "r.html"), "-j", "1"])
    assert result.exit_code == 1
    verdict = re.search(r'class="verdict bad">(.*?)</p>', (tmp_path / "r.html").read_text())
    assert verdict is not None
    assert "replay" in verdict[1]
    assert "mask_share" in verdict[1]


@pytest.mark.parametrize("data", ["packed", "text"])
def test_data_without_masks_has_a_report_too(prepared: Path, tmp_path: Path, data: str) -> None:
    result = CliRunner().invoke(main, ["verify", str(prepared / data), "--html", str(tmp_path / "r.html"), "-j", "1"])
    assert result.exit_code == 0
    assert "From documents to tokens" in (tmp_path / "r.html").read_text()


def test_a_browser_shows_it_without_a_complaint(page: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here (Debian: apt-get install chromium)")
    for width in (380, 1200):
        picture = tmp_path / f"{width}.png"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--window-size={width},3000",
        ]
        run = subprocess.run(
            [chromium, *options, f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        assert "CONSOLE" not in run.stderr
        assert picture.stat().st_size > 20_000


def test_markup_in_documents_and_names_is_shown_and_not_obeyed(tokenizer: Path, tmp_path: Path) -> None:
    corpus, dest = tmp_path / "corpus.txt", tmp_path / "<img src=x onerror=document.title='owned'>"
    attack = "<script>document.title='owned'</script> <img src=x onerror=document.title='owned'> &lt;b&gt;"
    corpus.write_text(f"{attack}\n" * 200)
    commands = [
        ["run", corpus, dest, "--tokenizer", tokenizer, "--max-length", "64", "-j", "1", "-q"],
        ["verify", dest / "masked", "--html", tmp_path / "report.html", "-j", "1"],
        ["show", dest / "masked", "--rows", "3", "--html", tmp_path / "show.html"],
    ]
    for command in commands:
        result = CliRunner().invoke(main, [str(word) for word in command])
        assert result.exit_code in (0, 1), result.output  # so few words in so many rows may look odd to the statistics
    for name in ("report.html", "show.html"):
        assert not re.search(r"<(script|img)", (tmp_path / name).read_text())
        chromium = shutil.which("chromium")
        if chromium is not None:
            options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
            command = [chromium, *options, "--dump-dom", (tmp_path / name).as_uri()]
            dom = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
            assert "<title>owned" not in dom
