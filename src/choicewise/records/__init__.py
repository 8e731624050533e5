"""What is stored: schemas, typed rows, the manifest as a value, constants of the format.  No input or output."""
