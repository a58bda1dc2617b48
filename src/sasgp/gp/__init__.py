"""The mathematics of Gaussian processes: tensors in, tensors out. Private: names here may change in any release."""
