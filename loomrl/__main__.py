"""`python -m loomrl`: the `loomrl` command."""

import sys

try:
    from loomrl.experiments.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"loomrl: {sys.executable} has no {error.name}, which LoomRL needs. On a cluster `python` is the first one in "
        "the PATH of those who started Ray: activate the environment that has what LoomRL needs before `ray start`."
    )

if __name__ == "__main__":
    main()
