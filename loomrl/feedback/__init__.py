"""From what people say of served answers to rewards, data sets and the next training."""
