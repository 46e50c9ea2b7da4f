"""The names of tensors: rules from a side to canonical names, and what suggests them."""
