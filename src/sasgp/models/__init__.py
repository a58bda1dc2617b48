"""Encoder and decoder under one objective, which training minimises. Private: names may change in any release."""
