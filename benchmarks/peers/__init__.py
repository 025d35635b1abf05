"""What others offer for the same job, measured beside PlexRL in the same run."""
