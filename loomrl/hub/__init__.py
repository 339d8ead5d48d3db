"""The Trajectory API: a durable queue of groups between whoever acts and whoever learns."""
