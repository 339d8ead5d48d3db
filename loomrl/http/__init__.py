"""HTTP servers: listening, access control, time limits, shutdown."""
