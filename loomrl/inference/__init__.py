"""Engines: token ids in, token ids out; and policies that sample from them."""
