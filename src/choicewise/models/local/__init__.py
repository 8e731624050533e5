"""Models in a local folder, computed with torch and transformers."""
