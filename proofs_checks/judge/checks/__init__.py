"""How an answer of each stage is judged: bounded, exactly, as a set, or by what defines it."""
