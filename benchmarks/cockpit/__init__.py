"""A large cluster that is made up, behind pages that are real."""
