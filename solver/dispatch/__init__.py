"""Grants leases: a pure state machine that simulator and runtime run alike."""
