"""The files of a masked data set, read without clozeline: `datasets` and a DataLoader.

    python examples/external_datasets.py work/masked

Every file is an Arrow stream with the columns input_ids, attention_mask and labels. `datasets` reads them in the order of the
files; its shuffle is a buffer, and its place in an epoch is not exact: that is what `TokenStream` is for.
"""

import argparse

from datasets import load_dataset
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    rows = load_dataset("arrow", data_files=f"{args.data}/masked-*.arrow", split="train", streaming=True)
    rows = rows.select_columns(["input_ids", "attention_mask", "labels"]).with_format("torch")
    loader = DataLoader(rows, batch_size=args.batch_size)
    count = selected = 0
    for batch in loader:
        count += len(batch["input_ids"])
        selected += int((batch["labels"] != -100).sum())
    print(f"{count} rows, {selected} selected tokens")


if __name__ == "__main__":
    main()
