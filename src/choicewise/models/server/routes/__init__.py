"""Ways of asking a server, one a file: each says what it can answer, and reads answers strictly."""
