#!/bin/bash

apt-get update
apt-get install -y curl

curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env

if [ "$PWD" = "/" ]; then
    echo "no working directory"
    exit 1
fi

uv init
uv add pytest==8.4.1
uv run pytest $TEST_DIR/check_tally.py -rA
