"""What the user or the world got wrong; our own faults are assertions."""

from __future__ import annotations


class LoadError(Exception):
    """One clear sentence that names the thing and the cure."""
