"""One run computed by several processes or machines.

Workers on one machine, a Ray cluster, shards of a run, and the merge of shards.
"""

from choicewise.ports import Extension

EXTENSION = Extension("cluster", [])
