"""The bridge to the solver: profiles in, plans out."""
