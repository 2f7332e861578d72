"""Decoders: a checkpoint's configuration and weights as calls on ops."""
