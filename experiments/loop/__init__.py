"""The whole loop on one machine: what simulated people say of a policy in production trains its next version."""
