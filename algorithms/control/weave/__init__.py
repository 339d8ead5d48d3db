"""WEAVE: several experts, critics and objectives."""
