"""Release: arms compared, versions gated, traffic moved step by step. Pure, but for the ledger."""
