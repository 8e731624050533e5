"""Numbers as text for the terminal: tables and sentences."""
