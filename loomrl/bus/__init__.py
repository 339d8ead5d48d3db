"""Events as they leave and arrive: five contracts, a bus in LoomDB or on NATS, what is published and what is taken in.

Light: importing it loads neither torch nor Ray.
"""
