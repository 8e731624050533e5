"""What it means: tables, comparison, explanation."""
