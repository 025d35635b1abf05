"""Decides who shares which groups, in what order, with proof; knows integers only."""
