"""What people see in a browser: the page of one or several runs, the board, and their charts."""
