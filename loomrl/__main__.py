"""`python -m loomrl`: the `loomrl` command."""

from loomrl.experiments.cli import main

if __name__ == "__main__":
    main()
