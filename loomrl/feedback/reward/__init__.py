"""The reward pipeline: components with their evidence, normalised and weighted, on record by cursor."""
