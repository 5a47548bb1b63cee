"""Raw English text to masked rows of 512: `clozeline run` against the Hugging Face recipe and the tokenizers alone.

python benchmarks/prepare.py [--only prepare-20mb] [--repeats 3]
"""

from __future__ import annotations

from harness import PEERS, Case, Subject, english_text, installed, main, multiplied, ours, script, tokenizer_folder

TOKENIZER = str(tokenizer_folder())


def subject(name: str, title: str, text: str, *, peers: bool = True) -> Subject:
    common = ("--documents", "blank-lines", "--tokenizer", TOKENIZER, "--seed", "1", "-j", "2")
    cases = [
        Case(name="clozeline run --static", argv=ours("run", text, "{out}", "--static", *common), role="ours"),
        Case(name="clozeline run --dynamic", argv=ours("run", text, "{out}", "--dynamic", *common), role="ours"),
    ]
    recipe = script(PEERS / "hugging_face.py", text, "{out}", "--tokenizer", TOKENIZER, "--processes", "2", "--static")
    alone = PEERS / "tokenizers_only.py"
    if installed("nanotoken"):
        argv = script(alone, text, "--tokenizer", TOKENIZER, "--engine", "nanotoken")
        cases.append(Case(name="nanotoken alone, 2 threads", argv=argv, role="floor"))
    if peers:
        cases.append(Case(name="Hugging Face recipe, static", argv=recipe))
    cases.append(
        Case(name="pyarrow copy of the bytes", argv=script(PEERS / "copy_bytes.py", text, "{out}"), role="floor")
    )
    return Subject(name=name, title=title, cases=tuple(cases), items=("bytes", float(_size(text))))


def reference(name: str, title: str, text: str) -> Subject:
    """With the engine of `tokenizers` itself, against `tokenizers` alone."""
    common = ("--documents", "blank-lines", "--tokenizer", TOKENIZER, "-j", "2", "--engine", "tokenizers")
    cases = (
        Case(name="clozeline run --dynamic --engine tokenizers", argv=ours("run", text, "{out}", "--dynamic", *common)),
        Case(
            name="tokenizers.encode_batch_fast alone, 2 threads",
            argv=script(PEERS / "tokenizers_only.py", text, "--tokenizer", TOKENIZER),
            role="floor",
        ),
    )
    return Subject(name=name, title=title, cases=cases, items=("bytes", float(_size(text))))


def memory(name: str, title: str, texts: dict[str, str]) -> Subject:
    """Peak memory as the text grows, with as many workers."""
    common = ("{out}", "--static", "--documents", "blank-lines", "--tokenizer", TOKENIZER)
    common += ("-j", "2", "--executor", "processes")
    cases = tuple(Case(name=label, argv=ours("run", text, *common), role="ours") for label, text in texts.items())
    return Subject(name=name, title=title, cases=cases)


def _size(path: str) -> int:
    from pathlib import Path

    return Path(path).stat().st_size


if __name__ == "__main__":
    small = english_text()
    large = multiplied(small, 8)
    main(
        subject("prepare-20mb", "20 MB of English to static masked rows, whole processes", str(small)),
        subject("prepare-160mb", "The same text eight times in other orders", str(large)),
        reference("prepare-tokenizers", "20 MB of English to rows by the engine of `tokenizers`", str(small)),
        memory(
            "prepare-memory",
            "`run --static` by two worker processes on 20 MB, four and eight times as much",
            {"20 MB": str(small), "80 MB": str(multiplied(small, 4)), "160 MB": str(large)},
        ),
    )
