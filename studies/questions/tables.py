"""Models of mixed tables beside simpler ones."""
