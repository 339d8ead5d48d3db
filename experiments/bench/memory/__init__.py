"""`loomrl bench memory` and `loomrl bench meta`: what a memory is worth, in an episode and over its trials."""
