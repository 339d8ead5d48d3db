"""Token policies as RLlib algorithms. Axes: `_N` samples, `_T` tokens, `_BT` rows of packed tokens, `_V` vocabulary."""
