#!/bin/bash
python3 /tests/check.py > /logs/verifier/reward.json
