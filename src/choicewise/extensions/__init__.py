"""Hold the extensions of the kernel, which register as those of other packages do.

The kernel imports nothing from here.
"""
