"""The exactness gate: our greedy tokens and logits beside an oracle's, position by position."""
