"""The board over HTTP: who may ask, what is answered, and how long a connection may take."""
