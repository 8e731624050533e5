"""Other tools' files: logs that are read, tasks that become protocols, formats that are written."""
