"""aiperf: is the after really better than the before, by how much, why, and how sure are we?"""

__version__ = "0.1.0"
