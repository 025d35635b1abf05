"""The only room that knows OR-Tools."""
