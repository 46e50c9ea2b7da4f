"""How much the checks can see: wrong rules of every op, and which surfaces catch them."""
