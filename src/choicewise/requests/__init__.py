"""From items to questions: where requests come from, how they fit the window, how each reading asks."""
