"""Kernels: typed buffers, ops declared once, recorded plans, and the backends that run them."""
