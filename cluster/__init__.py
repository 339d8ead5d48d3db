"""Ray clusters, jobs and their monitoring."""
