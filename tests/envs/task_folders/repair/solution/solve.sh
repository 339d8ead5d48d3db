#!/bin/bash
cp "$(dirname "$0")/fibonacci.py" /app/src/fibonacci.py
