"""Public packages judged in environments of their own (`kvproof public`, docs/public-ports.md)."""
