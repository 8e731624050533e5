"""What was seen: the run folder, its fixed schema, its manifest."""
