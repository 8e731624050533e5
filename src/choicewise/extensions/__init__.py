"""What Choicewise adds to its kernel by the same door as other packages: one folder for each
extension.

The kernel imports nothing from here.
"""
