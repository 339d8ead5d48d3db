"""Evidence of a policy version as a bundle, and its verification on another machine."""
