"""Where the work of a run is done: in this process, in several on this machine, or on a Ray cluster."""
