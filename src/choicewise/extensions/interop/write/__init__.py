"""Writers of other tools' formats, one module for each tool or kind of file.

``common.py`` has what they share; :mod:`choicewise.extensions.interop.export` lists them.
"""
