"""How it is asked: the protocol value, its signature, the catalogue, rendering, shots and fitting."""
