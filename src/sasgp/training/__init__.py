"""From a model and rows to a trained model: first numbers, the loop, checkpoints, several processes."""
