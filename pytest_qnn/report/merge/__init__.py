"""The reports of a campaign's shards, read and put together into one report."""
