"""Words for the rule that a plan was scored with, and that the cluster serves by once applied."""

from __future__ import annotations

BY_ORDER = "in the plan's order, with backfill"
"""Plans of one pool, and of jobs on groups they name."""
BY_LENGTH = "the shortest op first, as long as no job nears its limit"
"""Plans of several pools."""
