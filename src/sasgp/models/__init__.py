"""Models: an encoder and a decoder with the objective that training optimises."""
