"""The cluster side: plugin, drivers, registry, client."""
