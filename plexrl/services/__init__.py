"""The resident LLM service of a group."""
