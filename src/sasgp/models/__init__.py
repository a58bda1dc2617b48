"""Decoders with one interface: `forward` returns a loss, `encode` finds latents, `condition` makes the predictor."""
