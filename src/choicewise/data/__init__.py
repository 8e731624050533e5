"""What is asked: items, datasets and one reader per file format."""
