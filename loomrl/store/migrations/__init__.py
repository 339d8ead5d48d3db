"""The history of LoomDB's schema, one file per version under `versions/`.

A change to `tables.py`, `hub_tables.py` or `view/tables.py` needs a new version. `pytest
tests/store/test_migration.py` fails until it is there and prints the missing operations as code to start from. Triggers
are not compared: write them by hand.
"""
