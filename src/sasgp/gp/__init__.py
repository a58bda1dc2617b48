"""The mathematics of Gaussian processes: tensors in, tensors out. Nothing here knows a model, a file or a user."""
