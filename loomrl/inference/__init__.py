"""Engines: token ids in, token ids out. A policy of tokens for every episode."""
