"""Other tools' files: logs that are read, tasks that become protocols, formats that are written.

``logs`` reads, ``write`` and ``export.py`` write, ``harness_tasks`` makes protocols of tasks.
"""

from choicewise.ports import Extension

EXTENSION = Extension("interop", [])
