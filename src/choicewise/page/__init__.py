"""One HTML page of a run or several, with its charts: content, view data, and the document itself."""
