"""The truth that every other backend is compared with, in numpy.

One module a `reference` name of `ops`, one function an op, named like it.
"""
