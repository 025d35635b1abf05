"""Lets ``python -m plexrl`` be the command `plexrl`."""

from __future__ import annotations

from plexrl.cli.main import main

if __name__ == "__main__":
    main()
