"""Models behind servers that speak the protocol of OpenAI's completions."""
