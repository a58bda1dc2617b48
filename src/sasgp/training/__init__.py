"""From a model and rows to a trained model: initial values, the loop, checkpoints, several processes."""
