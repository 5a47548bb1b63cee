"""`python -m clozeline`."""

from clozeline.cli.main import main

if __name__ == "__main__":
    main(prog_name="clozeline")
