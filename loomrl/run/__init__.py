"""The life of a run: on record, its versions in a ledger, and when it has had enough."""
