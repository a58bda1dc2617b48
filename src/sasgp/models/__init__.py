"""Encoder and decoder under one objective: what training minimises."""
