"""People taken out of weights: planned, trained again without their rows, released, certified."""
